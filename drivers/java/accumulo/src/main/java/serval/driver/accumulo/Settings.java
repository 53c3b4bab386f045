package serval.driver.accumulo;

import java.io.IOException;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.accumulo.core.client.BatchWriterConfig;
import org.apache.accumulo.core.client.Durability;
import serval.driver.StoreProperties;

/** Settings of the store. Serval has checked the properties and set their defaults ({@code serval stores accumulo}). */
final class Settings {
  /** Properties of Accumulo's own client: the instance and the login. */
  final Properties client;
  final String family;
  final boolean buffering;
  final BatchWriterConfig writer;
  /** Whether flushes are reported separately; if not, an operation reports their failures. */
  final boolean reportsFlushes;
  final boolean create;
  final int tablets;
  final long timeoutMilliseconds;
  final long connectMilliseconds;

  Settings(Properties properties) throws IOException {
    StoreProperties given = new StoreProperties(properties, "accumulo");
    client = client(given);
    family = given.text("accumulo.columnFamily");
    buffering = given.flag("accumulo.clientbuffering");
    reportsFlushes = buffering && given.reportsFlushes();
    create = given.flag("accumulo.create");
    tablets = given.count("accumulo.tablets");
    timeoutMilliseconds = given.number("accumulo.timeout");
    connectMilliseconds = given.number("accumulo.connecttimeout");
    writer = new BatchWriterConfig()
        .setMaxMemory(given.number("accumulo.batchWriterSize"))
        .setMaxLatency(given.number("accumulo.batchWriterMaxLatency"), TimeUnit.MILLISECONDS)
        .setTimeout(timeoutMilliseconds, TimeUnit.MILLISECONDS)
        .setDurability(given.choice(Durability.class, "accumulo.durability"));
    // Default as in YCSB: half of the processors, at least one.
    int threads = given.count("accumulo.batchWriterThreads");
    writer.setMaxWriteThreads(threads > 0 ? threads : Math.max(1, Runtime.getRuntime().availableProcessors() / 2));
  }

  private static Properties client(StoreProperties given) throws IOException {
    Properties client = new Properties();
    String file = given.optional("accumulo.clientProperties", "");
    if (!file.isEmpty()) {
      try (Reader reader = Files.newBufferedReader(Path.of(file))) {
        client.load(reader);
      }
    }
    set(client, "instance.name", given.optional("accumulo.instanceName", null));
    set(client, "instance.zookeepers", given.optional("accumulo.zooKeepers", null));
    set(client, "auth.principal", given.optional("accumulo.username", null));
    if (given.optional("accumulo.password", null) != null) {
      client.setProperty("auth.type", "password");
      client.setProperty("auth.token", given.optional("accumulo.password", null));
    }
    for (String name : new String[] {"instance.name", "instance.zookeepers", "auth.principal", "auth.type", "auth.token"}) {
      if (client.getProperty(name, "").isEmpty()) {
        throw new IllegalArgumentException(name + " is not known: set accumulo.instanceName, accumulo.zooKeepers, "
            + "accumulo.username and accumulo.password, or name a file with it in accumulo.clientProperties");
      }
    }
    return client;
  }

  private static void set(Properties client, String name, String value) {
    if (value != null) {
      client.setProperty(name, value);
    }
  }
}
