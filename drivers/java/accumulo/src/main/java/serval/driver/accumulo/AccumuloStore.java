package serval.driver.accumulo;

import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.SortedSet;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.TimeoutException;
import org.apache.accumulo.core.client.Accumulo;
import org.apache.accumulo.core.client.AccumuloClient;
import org.apache.accumulo.core.client.AccumuloSecurityException;
import org.apache.accumulo.core.client.TableExistsException;
import org.apache.accumulo.core.client.admin.NewTableConfiguration;
import org.apache.accumulo.core.client.admin.TimeType;
import org.apache.accumulo.core.security.SystemPermission;
import org.apache.hadoop.io.Text;
import serval.driver.Client;
import serval.driver.ErrorText;
import serval.driver.Setup;
import serval.driver.Store;

/**
 * Store Accumulo, with the layout of YCSB's binding accumulo1.9: a record is the row of its key, in one column family, and a
 * field is a qualifier. All clients share one connection; each has a thread and a batch writer of its own.
 */
final class AccumuloStore implements Store {
  private final Settings settings;
  private AccumuloClient accumulo;

  AccumuloStore(Properties properties) throws Exception {
    settings = new Settings(properties);
  }

  @Override
  public String name() {
    return "Accumulo";
  }

  @Override
  public Map<String, String> facts() {
    Map<String, String> facts = new TreeMap<>();
    String version = AccumuloClient.class.getPackage().getImplementationVersion();
    facts.put("client", "Accumulo" + (version == null ? "" : " " + version));
    facts.put("instance", settings.client.getProperty("instance.name"));
    facts.put("java", System.getProperty("java.version"));
    facts.put("zookeepers", settings.client.getProperty("instance.zookeepers"));
    return facts;
  }

  @Override
  public void prepare(String table, List<String> fields, boolean load) throws Exception {
    try {
      Setup.within(settings.connectMilliseconds, () -> {
        connect(table, load);
        return null;
      });
    } catch (TimeoutException late) {
      throw new IllegalStateException("no answer from " + where() + " within " + settings.connectMilliseconds
          + " ms (accumulo.connecttimeout): does it run there, and are accumulo.zooKeepers and accumulo.instanceName right?");
    } catch (IllegalArgumentException explained) {
      throw explained;
    } catch (Exception error) {
      String hint = error instanceof AccumuloSecurityException ? " (accumulo.username, accumulo.password)" : "";
      throw new IllegalStateException(where() + hint + ": " + ErrorText.withCause(error), null);
    }
  }

  private String where() {
    return "the instance '" + settings.client.getProperty("instance.name") + "' at ZooKeeper "
        + settings.client.getProperty("instance.zookeepers");
  }

  private void connect(String table, boolean load) throws Exception {
    if (accumulo == null) {
      try {
        accumulo = Accumulo.newClient().from(settings.client).build();
      } catch (RuntimeException error) {
        // ZooKeeper does not know the instance.
        throw new IllegalStateException(ErrorText.withCause(error), null);
      }
    }
    // Checks the login now; Accumulo's client would check it with the first operation.
    accumulo.securityOperations().hasSystemPermission(accumulo.whoami(), SystemPermission.CREATE_TABLE);
    if (accumulo.tableOperations().exists(table)) {
      return;
    }
    if (!load || !settings.create) {
      throw new IllegalArgumentException("there is no table '" + table + "' in " + where()
          + ": load makes it (unless accumulo.create=false), or in Accumulo's shell: createtable " + table);
    }
    // With clock timestamps, a delete would hide writes that follow in the same millisecond.
    NewTableConfiguration configuration = new NewTableConfiguration().setTimeType(TimeType.LOGICAL);
    SortedSet<Text> splits = new TreeSet<>();
    Setup.splits(settings.tablets).forEach(key -> splits.add(new Text(key)));
    if (!splits.isEmpty()) {
      configuration.withSplits(splits);
    }
    try {
      accumulo.tableOperations().create(table, configuration);
    } catch (TableExistsException raced) {
      // Another process of the same load created it first.
    }
  }

  @Override
  public Client open(int number) {
    if (accumulo == null) {
      throw new IllegalStateException("the store is not prepared");
    }
    return new RowClient(accumulo, settings);
  }

  @Override
  public void close() {
    if (accumulo != null) {
      accumulo.close();
    }
  }
}
