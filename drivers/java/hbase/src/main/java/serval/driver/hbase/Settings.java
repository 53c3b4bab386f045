package serval.driver.hbase;

import java.io.File;
import java.io.IOException;
import java.net.MalformedURLException;
import java.util.List;
import java.util.Properties;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.client.Durability;
import org.apache.hadoop.hbase.filter.BinaryComparator;
import org.apache.hadoop.hbase.filter.ValueFilter;
import org.apache.hadoop.hbase.util.Bytes;

/** The store's properties. Serval has checked them and filled in the defaults, which live there ({@code serval stores hbase}). */
final class Settings {
  /** Properties with these beginnings are HBase's own settings. */
  private static final List<String> PASSED_ON = List.of("hbase.", "zookeeper.", "hadoop.");

  final Configuration configuration;
  final String namespace;
  final byte[] family;
  final boolean buffering;
  final long bufferBytes;
  /** 0 for none. */
  final long bufferMilliseconds;
  /** Whether flushes are told of as such; if not, their failures are those of operations. */
  final boolean tellsFlushes;
  final Durability durability;
  final boolean create;
  final int regions;
  final boolean newVersionBehavior;
  final long connectMilliseconds;
  final boolean pageFilter;
  /** Null for none. */
  final ValueFilter valueFilter;
  /** Null without a login. */
  final String principal;
  final String keytab;

  Settings(Properties given) throws IOException {
    configuration = configuration(given);
    namespace = given.getProperty("hbase.namespace", "");
    family = Bytes.toBytes(text(given, "columnfamily"));
    buffering = flag(given, "clientbuffering");
    bufferBytes = Long.parseLong(text(given, "writebuffersize"));
    bufferMilliseconds = Long.parseLong(text(given, "hbase.writebufferlatency"));
    tellsFlushes = "told".equals(given.getProperty("driver.flushes"));
    durability = Durability.valueOf(text(given, "durability"));
    create = flag(given, "hbase.create");
    regions = Integer.parseInt(text(given, "hbase.regions"));
    newVersionBehavior = flag(given, "hbase.newversionbehavior");
    connectMilliseconds = Long.parseLong(text(given, "hbase.connecttimeout"));
    pageFilter = flag(given, "hbase.usepagefilter");
    valueFilter = flag(given, "hbase.usescanvaluefiltering") ? valueFilter(given) : null;
    principal = given.getProperty("principal");
    keytab = given.getProperty("keytab");
  }

  private static Configuration configuration(Properties given) throws IOException {
    Configuration configuration = HBaseConfiguration.create();
    String site = given.getProperty("hbase.site", "");
    if (!site.isEmpty()) {
      try {
        configuration.addResource(new File(site).toURI().toURL());
      } catch (MalformedURLException error) {
        throw new IOException("hbase.site=" + site + " is no path", error);
      }
    }
    for (String name : given.stringPropertyNames()) {
      if (PASSED_ON.stream().anyMatch(name::startsWith)) {
        configuration.set(name, given.getProperty(name));
      }
    }
    String timeout = text(given, "hbase.timeout");
    for (String name : List.of("hbase.client.operation.timeout", "hbase.client.meta.operation.timeout",
        "hbase.client.scanner.timeout.period", "hbase.rpc.timeout")) {
      if (given.getProperty(name) == null) {
        configuration.set(name, timeout);
      }
    }
    return configuration;
  }

  private static ValueFilter valueFilter(Properties given) {
    CompareOperator operator = CompareOperator.valueOf(text(given, "hbase.scanfilteroperator").toUpperCase(java.util.Locale.ROOT));
    return new ValueFilter(operator, new BinaryComparator(Bytes.fromHex(text(given, "hbase.scanfiltervalue"))));
  }

  private static String text(Properties given, String name) {
    String text = given.getProperty(name);
    if (text == null) {
      throw new IllegalArgumentException(name + " is not set; 'serval load hbase' and 'serval run hbase' set it");
    }
    return text;
  }

  private static boolean flag(Properties given, String name) {
    return Boolean.parseBoolean(text(given, name));
  }
}
