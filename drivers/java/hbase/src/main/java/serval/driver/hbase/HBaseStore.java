package serval.driver.hbase;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.UnknownHostException;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeoutException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HConstants;
import org.apache.hadoop.hbase.NamespaceDescriptor;
import org.apache.hadoop.hbase.NamespaceExistException;
import org.apache.hadoop.hbase.TableExistsException;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.util.VersionInfo;
import org.apache.hadoop.security.UserGroupInformation;
import serval.driver.Client;
import serval.driver.Setup;
import serval.driver.Store;

/** Store HBase through its own client, with YCSB's layout: the key is the row, a field is a qualifier of one family. */
final class HBaseStore implements Store {
  private static final String REGISTRY = "hbase.client.registry.impl";
  /** Time limit for a connection to a server's port. */
  private static final int PORT_MILLISECONDS = 2000;
  /** Most buffers that the timer flushes concurrently. */
  private static final int TIMER_THREADS = 8;

  private final Settings settings;
  /** Connection of all clients, as in YCSB's binding. It has one TCP connection per server. */
  private volatile Connection connection;
  /** Flushes buffers by age. It has several threads, because each flush waits for its answers. */
  private final ScheduledExecutorService timer = Executors.newScheduledThreadPool(TIMER_THREADS, task -> {
    Thread thread = new Thread(task, "flush");
    thread.setDaemon(true);
    return thread;
  });

  HBaseStore(Settings settings) {
    this.settings = settings;
  }

  @Override
  public String name() {
    return "hbase";
  }

  @Override
  public Map<String, String> facts() {
    Map<String, String> facts = new LinkedHashMap<>();
    facts.put("client", "hbase-client " + VersionInfo.getVersion());
    facts.put("address", address());
    facts.put("java", System.getProperty("java.version"));
    return facts;
  }

  /** Returns the address of HBase in ZooKeeper. */
  private String address() {
    Configuration configuration = settings.configuration;
    return configuration.get(HConstants.ZOOKEEPER_QUORUM, "127.0.0.1") + ":"
        + configuration.get(HConstants.ZOOKEEPER_CLIENT_PORT, "2181")
        + configuration.get(HConstants.ZOOKEEPER_ZNODE_PARENT, "/hbase");
  }

  @Override
  public void prepare(String table, List<String> fields, boolean load) throws Exception {
    TableName name = name(table);
    boolean exists;
    try {
      exists = Setup.within(settings.connectMilliseconds, () -> {
        connect();
        try (Admin admin = connection.getAdmin()) {
          return admin.tableExists(name);
        }
      });
    } catch (TimeoutException late) {
      throw new IOException("no HBase answers at " + address() + " within " + settings.connectMilliseconds
          + " ms (hbase.connecttimeout): do its master and region servers run, and is zookeeper.znode.parent theirs?");
    }
    try (Admin admin = connection.getAdmin()) {
      if (!exists && load && settings.create) {
        create(admin, name);
      } else if (!exists) {
        String made = load ? "hbase.create=false keeps the load from making it" : "a load makes it";
        throw new IOException("there is no table '" + name + "' at " + address() + ": " + made);
      }
      TableDescriptor descriptor = admin.getDescriptor(name);
      if (!descriptor.hasColumnFamily(settings.family)) {
        StringJoiner families = new StringJoiner(", ");
        for (ColumnFamilyDescriptor family : descriptor.getColumnFamilies()) {
          families.add(family.getNameAsString());
        }
        throw new IOException("the table '" + name + "' has no column family '" + Bytes.toString(settings.family)
            + "' (columnfamily); it has: " + families);
      }
    }
  }

  private TableName name(String table) {
    return table.indexOf(':') >= 0 || settings.namespace.isEmpty()
        ? TableName.valueOf(table)
        : TableName.valueOf(settings.namespace, table);
  }

  /** Connects, unless the store is connected. */
  private void connect() throws IOException {
    if (connection == null) {
      logIn();
      if (settings.configuration.get(REGISTRY) == null) {
        findZooKeeper();
      }
      connection = ConnectionFactory.createConnection(settings.configuration);
    }
  }

  private void logIn() throws IOException {
    Configuration configuration = settings.configuration;
    if ("kerberos".equalsIgnoreCase(configuration.get("hbase.security.authentication"))) {
      configuration.set("hadoop.security.authentication", "Kerberos");
      UserGroupInformation.setConfiguration(configuration);
    }
    if (settings.principal != null && settings.keytab != null) {
      UserGroupInformation.loginUserFromKeytab(settings.principal, settings.keytab);
    }
  }

  /** Checks whether a ZooKeeper server listens. HBase's client would report an unreachable ZooKeeper only after minutes. */
  private void findZooKeeper() throws IOException {
    int usual = settings.configuration.getInt(HConstants.ZOOKEEPER_CLIENT_PORT, 2181);
    StringJoiner problems = new StringJoiner(", ");
    for (String server : settings.configuration.get(HConstants.ZOOKEEPER_QUORUM, "127.0.0.1").split(",")) {
      String text = server.trim();
      int colon = text.lastIndexOf(':');
      String host = colon < 0 ? text : text.substring(0, colon);
      try (Socket socket = new Socket()) {
        int port = colon < 0 ? usual : Integer.parseInt(text.substring(colon + 1));
        socket.connect(new InetSocketAddress(host, port), PORT_MILLISECONDS);
        return;
      } catch (UnknownHostException unknown) {
        problems.add(host + ": the name is not known");
      } catch (IOException | IllegalArgumentException error) {
        problems.add(text + (colon < 0 ? ":" + usual : "") + ": " + error.getMessage());
      }
    }
    throw new IOException("no ZooKeeper of HBase's answers (" + problems
        + "): set hbase.zookeeper.quorum and hbase.zookeeper.property.clientPort, or hbase.site");
  }

  private void create(Admin admin, TableName name) throws IOException {
    String namespace = name.getNamespaceAsString();
    if (!namespace.equals(NamespaceDescriptor.DEFAULT_NAMESPACE_NAME_STR)) {
      try {
        admin.createNamespace(NamespaceDescriptor.create(namespace).build());
      } catch (NamespaceExistException there) {
        // Another load created it first.
      }
    }
    ColumnFamilyDescriptor family = ColumnFamilyDescriptorBuilder.newBuilder(settings.family)
        .setNewVersionBehavior(settings.newVersionBehavior)
        .build();
    TableDescriptor descriptor = TableDescriptorBuilder.newBuilder(name).setColumnFamily(family).build();
    try {
      admin.createTable(descriptor, splits(settings.regions));
    } catch (TableExistsException there) {
      // Another load created it first.
    }
  }

  /** Returns the split keys of a table; null for one region. */
  private static byte[][] splits(int regions) {
    return regions > 1 ? Setup.splits(regions).stream().map(Bytes::toBytes).toArray(byte[][]::new) : null;
  }

  @Override
  public Client open(int number) throws IOException {
    if (connection == null) {
      throw new IOException("the store was not prepared");
    }
    return new HBaseClient(connection, settings, this::name, timer);
  }

  @Override
  public void close() throws IOException {
    timer.shutdown();
    if (connection != null) {
      connection.close();
    }
  }
}
