package serval.driver.accumulo;

import java.io.IOException;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.accumulo.core.client.BatchWriterConfig;
import org.apache.accumulo.core.client.Durability;

/** The store's properties. Serval has checked them and filled in the defaults, which live there ({@code serval stores accumulo}). */
final class Settings {
  /** Those of Accumulo's own client: where the instance is and who asks. */
  final Properties client;
  final String family;
  final boolean buffering;
  final BatchWriterConfig writer;
  /** Whether flushes are told of as such; if not, their failures are those of operations. */
  final boolean tellsFlushes;
  final boolean create;
  final int tablets;
  final long timeoutMilliseconds;
  final long connectMilliseconds;

  Settings(Properties given) throws IOException {
    client = client(given);
    family = text(given, "accumulo.columnFamily");
    buffering = Boolean.parseBoolean(text(given, "accumulo.clientbuffering"));
    tellsFlushes = buffering && "told".equals(given.getProperty("driver.flushes"));
    create = Boolean.parseBoolean(text(given, "accumulo.create"));
    tablets = Integer.parseInt(text(given, "accumulo.tablets"));
    timeoutMilliseconds = Long.parseLong(text(given, "accumulo.timeout"));
    connectMilliseconds = Long.parseLong(text(given, "accumulo.connecttimeout"));
    writer = new BatchWriterConfig()
        .setMaxMemory(Long.parseLong(text(given, "accumulo.batchWriterSize")))
        .setMaxLatency(Long.parseLong(text(given, "accumulo.batchWriterMaxLatency")), TimeUnit.MILLISECONDS)
        .setTimeout(timeoutMilliseconds, TimeUnit.MILLISECONDS)
        .setDurability(Durability.valueOf(text(given, "accumulo.durability").toUpperCase(java.util.Locale.ROOT)));
    // As YCSB: half of the processors, at least one.
    int threads = Integer.parseInt(text(given, "accumulo.batchWriterThreads"));
    writer.setMaxWriteThreads(threads > 0 ? threads : Math.max(1, Runtime.getRuntime().availableProcessors() / 2));
  }

  private static Properties client(Properties given) throws IOException {
    Properties client = new Properties();
    String file = given.getProperty("accumulo.clientProperties", "");
    if (!file.isEmpty()) {
      try (Reader reader = Files.newBufferedReader(Path.of(file))) {
        client.load(reader);
      }
    }
    set(client, "instance.name", given.getProperty("accumulo.instanceName"));
    set(client, "instance.zookeepers", given.getProperty("accumulo.zooKeepers"));
    set(client, "auth.principal", given.getProperty("accumulo.username"));
    if (given.getProperty("accumulo.password") != null) {
      client.setProperty("auth.type", "password");
      client.setProperty("auth.token", given.getProperty("accumulo.password"));
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

  private static String text(Properties given, String name) {
    String text = given.getProperty(name);
    if (text == null) {
      throw new IllegalArgumentException(name + " is not set; 'serval load accumulo' and 'serval run accumulo' set it");
    }
    return text;
  }
}
