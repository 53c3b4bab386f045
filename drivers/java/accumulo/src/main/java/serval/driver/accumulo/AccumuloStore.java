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
import serval.driver.Setup;
import serval.driver.Store;
import serval.driver.Words;

/**
 * Accumulo, laid out as YCSB's binding accumulo1.9 lays it: a row a record under its key, one column family, a qualifier a
 * field. One connection is shared by all clients; each has a thread and a batch writer of its own.
 */
final class AccumuloStore implements Store {
  private final Settings settings;
  private AccumuloClient accumulo;

  AccumuloStore(Properties given) throws Exception {
    settings = new Settings(given);
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
    } catch (IllegalArgumentException told) {
      throw told;
    } catch (Exception error) {
      String hint = error instanceof AccumuloSecurityException ? " (accumulo.username, accumulo.password)" : "";
      throw new IllegalStateException(where() + hint + ": " + Words.withCause(error), null);
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
        // Of an instance that ZooKeeper does not know.
        throw new IllegalStateException(Words.withCause(error), null);
      }
    }
    // Nothing before the first operation asks who we are.
    accumulo.securityOperations().hasSystemPermission(accumulo.whoami(), SystemPermission.CREATE_TABLE);
    if (accumulo.tableOperations().exists(table)) {
      return;
    }
    if (!load || !settings.create) {
      throw new IllegalArgumentException("there is no table '" + table + "' in " + where()
          + ": load makes it (unless accumulo.create=false), or in Accumulo's shell: createtable " + table);
    }
    // By the clock, a delete hides what is written after it in the same millisecond.
    NewTableConfiguration made = new NewTableConfiguration().setTimeType(TimeType.LOGICAL);
    SortedSet<Text> splits = new TreeSet<>();
    Setup.splits(settings.tablets).forEach(key -> splits.add(new Text(key)));
    if (!splits.isEmpty()) {
      made.withSplits(splits);
    }
    try {
      accumulo.tableOperations().create(table, made);
    } catch (TableExistsException raced) {
      // Another client of the same load was faster.
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
