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
import serval.driver.StoreProperties;

/** Settings of the store. Serval has checked the properties and set their defaults ({@code serval stores hbase}). */
final class Settings {
  /** Prefixes of properties that are HBase's own settings. */
  private static final List<String> PASSED_ON = List.of("hbase.", "zookeeper.", "hadoop.");

  final Configuration configuration;
  final String namespace;
  final byte[] family;
  final boolean buffering;
  final long bufferBytes;
  /** Age at which a buffer is flushed; 0 for no limit. */
  final long bufferMilliseconds;
  /** Whether flushes are reported separately; if not, an operation reports their failures. */
  final boolean reportsFlushes;
  final Durability durability;
  final boolean create;
  final int regions;
  final boolean newVersionBehavior;
  final long connectMilliseconds;
  final boolean pageFilter;
  /** Filter of scans; null for none. */
  final ValueFilter valueFilter;
  /** Kerberos principal; null for no login. */
  final String principal;
  final String keytab;

  Settings(Properties properties) throws IOException {
    StoreProperties given = new StoreProperties(properties, "hbase");
    configuration = configuration(properties, given);
    namespace = given.optional("hbase.namespace", "");
    family = Bytes.toBytes(given.text("columnfamily"));
    buffering = given.flag("clientbuffering");
    bufferBytes = given.number("writebuffersize");
    bufferMilliseconds = given.number("hbase.writebufferlatency");
    reportsFlushes = given.reportsFlushes();
    durability = given.choice(Durability.class, "durability");
    create = given.flag("hbase.create");
    regions = given.count("hbase.regions");
    newVersionBehavior = given.flag("hbase.newversionbehavior");
    connectMilliseconds = given.number("hbase.connecttimeout");
    pageFilter = given.flag("hbase.usepagefilter");
    valueFilter = given.flag("hbase.usescanvaluefiltering") ? valueFilter(given) : null;
    principal = given.optional("principal", null);
    keytab = given.optional("keytab", null);
  }

  private static Configuration configuration(Properties properties, StoreProperties given) throws IOException {
    Configuration configuration = HBaseConfiguration.create();
    String site = given.optional("hbase.site", "");
    if (!site.isEmpty()) {
      try {
        configuration.addResource(new File(site).toURI().toURL());
      } catch (MalformedURLException error) {
        throw new IOException("hbase.site=" + site + " is no path", error);
      }
    }
    for (String name : properties.stringPropertyNames()) {
      if (PASSED_ON.stream().anyMatch(name::startsWith)) {
        configuration.set(name, properties.getProperty(name));
      }
    }
    String timeout = given.text("hbase.timeout");
    for (String name : List.of("hbase.client.operation.timeout", "hbase.client.meta.operation.timeout",
        "hbase.client.scanner.timeout.period", "hbase.rpc.timeout")) {
      if (properties.getProperty(name) == null) {
        configuration.set(name, timeout);
      }
    }
    return configuration;
  }

  private static ValueFilter valueFilter(StoreProperties given) {
    CompareOperator operator = given.choice(CompareOperator.class, "hbase.scanfilteroperator");
    return new ValueFilter(operator, new BinaryComparator(Bytes.fromHex(given.text("hbase.scanfiltervalue"))));
  }
}
