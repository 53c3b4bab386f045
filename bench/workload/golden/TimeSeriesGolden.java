import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.Vector;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.NumericByteIterator;
import site.ycsb.Status;
import site.ycsb.StringByteIterator;
import site.ycsb.measurements.Measurements;
import site.ycsb.workloads.TimeSeriesWorkload;

/**
 * Writes timeseries_*.txt by driving the published TimeSeriesWorkload. Each
 * case begins with a line "# threads=N units=N property=value ..."; what
 * follows is what the store was asked for. Only cases that leave nothing to
 * chance are written, or sorted sets of what chance may give.
 *
 * To run it, with the core of YCSB 0.17.0 and its dependencies (htrace-core4,
 * HdrHistogram, jackson-mapper-asl, jackson-core-asl) in the class path CP:
 * javac -cp $CP -d /tmp/golden TimeSeriesGolden.java
 * java -Xmx1g -cp $CP:/tmp/golden TimeSeriesGolden bench/workload/golden
 */
public final class TimeSeriesGolden {
  private static final String BASE = "insertstart=1483228800 randomtimeseriesorder=false";

  private static PrintStream out;

  public static void main(String[] arguments) throws Exception {
    Measurements.setProperties(new Properties());
    Path directory = Path.of(arguments[0]);
    write(directory.resolve("timeseries_inserts.txt"), TimeSeriesGolden::inserts);
    write(directory.resolve("timeseries_sets.txt"), TimeSeriesGolden::sets);
    write(directory.resolve("timeseries_queries.txt"), TimeSeriesGolden::queries);
    write(directory.resolve("timeseries_verify.txt"), TimeSeriesGolden::verify);
    write(directory.resolve("timeseries_faults.txt"), TimeSeriesGolden::faults);
  }

  private interface Part {
    void write() throws Exception;
  }

  private static void write(Path path, Part part) throws Exception {
    out = new PrintStream(Files.newOutputStream(path), false, StandardCharsets.UTF_8);
    part.write();
    out.close();
  }

  private static Properties properties(String text) {
    Properties properties = new Properties();
    for (String pair : text.split(" ")) {
      int at = pair.indexOf('=');
      properties.setProperty(pair.substring(0, at), pair.substring(at + 1));
    }
    return properties;
  }

  /** A store that keeps what it was asked for as lines. */
  private static final class Lines extends DB {
    private final List<String> lines = new ArrayList<>();
    private final boolean values;

    Lines(boolean values) {
      this.values = values;
    }

    private Status write(String verb, String key, Map<String, ByteIterator> record) {
      StringBuilder line = new StringBuilder(verb).append(' ').append(key);
      for (Map.Entry<String, ByteIterator> field : record.entrySet()) {
        line.append(' ').append(field.getKey()).append('=');
        if (field.getValue() instanceof NumericByteIterator) {
          NumericByteIterator number = (NumericByteIterator) field.getValue();
          if (number.isFloatingPoint()) {
            line.append("double");
          } else if (field.getKey().equals("YCSBV") && !values) {
            line.append("long");
          } else {
            line.append(number.getLong());
          }
        } else {
          line.append(field.getValue());
        }
      }
      lines.add(line.toString());
      return Status.OK;
    }

    private Status ask(String verb, String key, Set<String> fields) {
      lines.add(verb + " " + key + " " + String.join(" ", new TreeSet<>(fields)));
      return Status.OK;
    }

    @Override
    public Status insert(String table, String key, Map<String, ByteIterator> record) {
      return write("INSERT", key, record);
    }

    @Override
    public Status update(String table, String key, Map<String, ByteIterator> record) {
      return write("UPDATE", key, record);
    }

    @Override
    public Status read(String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
      return ask("READ", key, fields);
    }

    @Override
    public Status scan(String table, String key, int count, Set<String> fields,
        Vector<HashMap<String, ByteIterator>> result) {
      return ask("SCAN", key, fields);
    }

    @Override
    public Status delete(String table, String key) {
      lines.add("DELETE " + key);
      return Status.OK;
    }
  }

  /** What the load of one thread after the other asks for. */
  private static Lines load(int threads, int units, String text, boolean values) throws Exception {
    Properties properties = properties(text);
    properties.setProperty("threadcount", String.valueOf(threads));
    TimeSeriesWorkload workload = new TimeSeriesWorkload();
    workload.init(properties);
    Lines store = new Lines(values);
    for (int thread = 0; thread < threads; thread++) {
      Object state = workload.initThread(properties, thread, threads);
      for (int unit = 0; unit < units; unit++) {
        workload.doInsert(store, state);
      }
    }
    return store;
  }

  private static void inserts() throws Exception {
    String names = " fieldlength=2 tagkeylength=2 tagvaluelength=2";
    String integrity = " dataintegrity=true valuetype=integers";
    String[] cases = {
        " recordcount=100 fieldcount=4 tagcount=2 tagcardinality=1,2 delayedseries=0" + names + integrity,
        " recordcount=100 fieldcount=7 tagcount=3 tagcardinality=1,3,2 delayedseries=0.1" + names + integrity,
        " recordcount=100 fieldcount=3 tagcount=2 tagcardinality=2,3 delayedseries=1 delayedintervals=3"
            + names + integrity,
        " recordcount=100 fieldcount=3 tagcount=1 tagcardinality=1 delayedseries=0 valuetype=integers" + names,
        " recordcount=100 fieldcount=3 tagcount=2 tagcardinality=2,1 delayedseries=0" + names,
        " recordcount=100 fieldcount=4 tagcount=3 tagcardinality=2,1,3 delayedseries=0.5" + names,
        " recordcount=100 fieldcount=3 tagcount=4 tagcardinality=1,2,2 timestampunits=minutes timestampinterval=5"
            + " delayedseries=0.6 delayedintervals=4" + names,
        " recordcount=100 fieldcount=60 fieldlength=1 tagcount=1 tagcardinality=55 tagkeylength=1 tagvaluelength=1"
            + " timestampunits=MILLISECONDS delayedseries=0",
        " recordcount=100 fieldcount=3 tagcount=1 tagcardinality=2 timestampunits=HOURS timestampkey=!t valuekey=z"
            + " delayedseries=0 tagkeylength=1 tagvaluelength=1 fieldlength=1",
        " recordcount=100 fieldcount=3 tagcount=1 tagcardinality=2 timestampunits=DAYS delayedseries=0",
    };
    for (String settings : cases) {
      for (int threads : new int[] {1, 3}) {
        int units = 30;
        String text = BASE + settings;
        out.println("# threads=" + threads + " units=" + units + " " + text);
        load(threads, units, text, settings.contains("dataintegrity")).lines.forEach(out::println);
      }
    }
    String text = BASE + " recordcount=100 fieldcount=64 fieldlength=8 tagcount=4 tagcardinality=1,2,4,2"
        + " delayedseries=0.10" + integrity;
    long digest = 0;
    List<String> lines = load(3, 20000, text, true).lines;
    for (String line : lines) {
      digest = digest * 6364136223846793005L + line.hashCode();
    }
    out.println("# threads=3 units=20000 " + text);
    out.printf("digest of %d: %016x%n", lines.size(), digest);
  }

  /** Where the order is random: what there is, sorted. */
  private static void sets() throws Exception {
    String[] cases = {
        "insertstart=1483228800 recordcount=40 fieldcount=2 tagcount=1 tagcardinality=2 randomwritetimestamporder=true"
            + " randomtimeseriesorder=false delayedseries=0 fieldlength=2 tagkeylength=2 tagvaluelength=2",
        "insertstart=1483228800 recordcount=400 fieldcount=5 tagcount=1 tagcardinality=4 delayedseries=0"
            + " fieldlength=2 tagkeylength=2 tagvaluelength=2",
    };
    int[] units = {44, 20};
    for (int i = 0; i < cases.length; i++) {
      out.println("# threads=1 units=" + units[i] + " " + cases[i]);
      new TreeSet<>(load(1, units[i], cases[i], false).lines).forEach(out::println);
    }
  }

  /** One series and one timestamp, so that there is nothing to choose. */
  private static void queries() throws Exception {
    String base = BASE + " recordcount=1 fieldcount=1 fieldlength=2 tagcount=2 tagcardinality=1,1 tagkeylength=2"
        + " tagvaluelength=2 delayedseries=0";
    String[] cases = {
        base,
        base + " querytimespan=3600",
        base + " querytimespan=100 queryrandomtimespan=true",
        base + " querytimespan=3600 timestampunits=MINUTES",
        base + " downsamplingfunction=SUM downsamplinginterval=60",
        base + " querytimespan=10 downsamplingfunction=avg downsamplinginterval=5 downsamplingkey=D tagpairdelimiter=~"
            + " querytimespandelimiter=.. deletedelimiter=/ timestampkey=T",
    };
    for (String text : cases) {
      out.println("# threads=1 units=1 " + text);
      Lines store = new Lines(true);
      for (String verb : new String[] {"Read", "Scan", "Delete"}) {
        transaction(verb, text, store);
      }
      store.lines.forEach(out::println);
    }
    // An update at the second timestamp: there is one older.
    String text = base + " valuetype=integers dataintegrity=true";
    out.println("# update " + text);
    Properties properties = properties(text);
    TimeSeriesWorkload workload = new TimeSeriesWorkload();
    workload.init(properties);
    Object state = workload.initThread(properties, 0, 1);
    Lines store = new Lines(true);
    workload.doInsert(store, state);
    method("doTransactionUpdate", DB.class, Object.class).invoke(workload, store, state);
    store.lines.forEach(out::println);
  }

  private static Method method(String name, Class<?>... types) throws Exception {
    Method method = TimeSeriesWorkload.class.getDeclaredMethod(name, types);
    method.setAccessible(true);
    return method;
  }

  private static void transaction(String verb, String text, DB store) throws Exception {
    Properties properties = properties(text);
    TimeSeriesWorkload workload = new TimeSeriesWorkload();
    workload.init(properties);
    Object state = workload.initThread(properties, 0, 1);
    method("doTransaction" + verb, DB.class, Object.class).invoke(workload, store, state);
  }

  /** Records and what verification makes of them. */
  private static void verify() throws Exception {
    TimeSeriesWorkload workload = new TimeSeriesWorkload();
    workload.init(properties(BASE + " recordcount=100 dataintegrity=true valuetype=integers"));
    String[] records = {
        "",
        "AA=AA YCSBTS=1483228800 YCSBV=0",
        "AA=AB AB=AA YCSBTS=1483228800 YCSBV=" + (("AAABABAA".hashCode()) ^ 1483228800L),
        "AB=AA AA=AB YCSBTS=1483228800 YCSBV=" + (("AAABABAA".hashCode()) ^ 1483228800L),
        "AA=AB AB=AA YCSBTS=1483228860 YCSBV=" + (("AAABABAA".hashCode()) ^ 1483228800L),
        "AA=AC AB=AA YCSBTS=1483228800 YCSBV=" + (("AAABABAA".hashCode()) ^ 1483228800L),
        "zzzzzzzz=zzzzzzzz YCSBTS=1483228800000 YCSBV=" + (("zzzzzzzzzzzzzzzz".hashCode()) ^ 1483228800000L),
        "AA=AB YCSBV=" + "AAAB".hashCode(),
        "AA=AB YCSBTS=" + "AAAB".hashCode(),
        "YCSBTS=5 YCSBV=5",
    };
    Method method = method("verifyRow", String.class, Map.class);
    for (String record : records) {
      Map<String, ByteIterator> cells = new TreeMap<>();
      for (String pair : record.isEmpty() ? new String[0] : record.split(" ")) {
        int at = pair.indexOf('=');
        String value = pair.substring(at + 1);
        cells.put(pair.substring(0, at), pair.startsWith("YCSB")
            ? new NumericByteIterator(Long.parseLong(value)) : new StringByteIterator(value));
      }
      out.println(((Status) method.invoke(workload, "KEY", cells)).getName() + " " + record);
    }
  }

  /** What stops YCSB: the case, the verb and the exception. */
  private static void faults() throws Exception {
    String base = BASE + " delayedseries=0 fieldlength=2 tagkeylength=2 tagvaluelength=2";
    String two = base + " recordcount=100 fieldcount=2 tagcount=1 tagcardinality=2";
    String[][] cases = {
        {"Read", two + " groupbyfunction=sum groupbykeys=1"},
        {"Update", two},
        {"Read", base + " recordcount=1 fieldcount=2 tagcount=1 tagcardinality=2"},
        {"Scan", base + " recordcount=1 fieldcount=2 tagcount=1 tagcardinality=2"},
        {"Delete", base + " recordcount=1 fieldcount=2 tagcount=1 tagcardinality=2"},
        {"Read", two + " querytimespan=59 queryrandomtimespan=true"},
        {"Insert", two + " sparsity=0.4"},
        {"Insert", two.replace("delayedseries=0", "delayedseries=1") + " delayedintervals=0"},
        {"Read", base + " recordcount=100 fieldcount=2 tagcount=3 tagcardinality=2"},
        {"Insert", base + " recordcount=100 fieldcount=2 tagcount=0"},
        {"Insert", base + " recordcount=4 fieldcount=2 tagcount=1 tagcardinality=2 randomwritetimestamporder=true"},
        {"Insert", base + " fieldcount=2 tagcount=1 tagcardinality=1 randomwritetimestamporder=true"},
        {"Read", two + " requestdistribution=latest"},
        {"Read", two + " timestampunits=NANOSECONDS"},
        {"Read", two + " dataintegrity=true"},
        {"Read", two + " downsamplingfunction=sum"},
        {"Read", two + " threadcount=3"},
        {"Read", two + " valuetype=mixed"},
    };
    for (String[] fault : cases) {
      String what = "none";
      try {
        for (int i = 0; i < 100; i++) {
          if (fault[0].equals("Insert")) {
            load(1, 100, fault[1], false);
            break;
          }
          transaction(fault[0], fault[1], new Lines(true));
        }
      } catch (Throwable thrown) {
        Throwable cause = thrown.getCause() == null ? thrown : thrown.getCause();
        what = cause.getClass().getSimpleName();
      }
      out.println(what + " " + fault[0] + " " + fault[1]);
    }
  }
}
