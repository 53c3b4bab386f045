import java.io.FileInputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.LongSupplier;
import site.ycsb.RandomByteIterator;
import site.ycsb.generator.AcknowledgedCounterGenerator;
import site.ycsb.generator.ConstantIntegerGenerator;
import site.ycsb.generator.DiscreteGenerator;
import site.ycsb.generator.ExponentialGenerator;
import site.ycsb.generator.HistogramGenerator;
import site.ycsb.generator.HotspotIntegerGenerator;
import site.ycsb.generator.ScrambledZipfianGenerator;
import site.ycsb.generator.SequentialGenerator;
import site.ycsb.generator.SkewedLatestGenerator;
import site.ycsb.generator.UniformLongGenerator;
import site.ycsb.generator.ZipfianGenerator;
import site.ycsb.measurements.Measurements;
import site.ycsb.workloads.CoreWorkload;

/**
 * Writes the golden files of this directory by asking the published YCSB core
 * and the JDK. How to run it: README.md.
 */
public final class Golden {
  private static final int PER_LINE = 20;

  private final Path directory;
  private PrintStream out;

  private Golden(Path directory) {
    this.directory = directory;
  }

  public static void main(String[] arguments) throws Exception {
    if (Thread.currentThread().getId() != 1) {
      throw new IllegalStateException("the generator's step depends on the thread: run in thread 1");
    }
    Golden golden = new Golden(Path.of(arguments[0]));
    golden.threadLocalRandom();
    golden.hashes();
    golden.integrity();
    golden.values();
    golden.zipfian();
    golden.scrambled();
    golden.latest();
    golden.ranges();
    golden.lengths();
    golden.properties();
  }

  // Java's own source of draws, from a state of our choosing.

  private static Field field(Class<?> owner, String name) throws Exception {
    Field field = owner.getDeclaredField(name);
    field.setAccessible(true);
    return field;
  }

  private static void seed(long seed) throws Exception {
    // Before the state is set: the first call seeds the thread.
    ThreadLocalRandom.current();
    field(Thread.class, "threadLocalRandomSeed").setLong(Thread.currentThread(), seed);
  }

  // Output.

  private void open(String name) throws IOException {
    out = new PrintStream(Files.newOutputStream(directory.resolve(name)), false, StandardCharsets.US_ASCII);
  }

  private void close() throws IOException {
    out.flush();
    if (out.checkError()) {
      throw new IOException("could not write");
    }
    out.close();
  }

  private void draws(int count, LongSupplier draw) {
    for (int i = 0; i < count; i++) {
      out.print(draw.getAsLong());
      out.print(i % PER_LINE == PER_LINE - 1 || i == count - 1 ? "\n" : " ");
    }
  }

  /** A digest of many draws, where the draws themselves would be too long. */
  private void digest(int count, LongSupplier draw) {
    long digest = 0;
    for (int i = 0; i < count; i++) {
      digest = digest * 6364136223846793005L + draw.getAsLong();
    }
    out.printf("digest of %d: %016x%n", count, digest);
  }

  private void constants(ZipfianGenerator zipfian) throws Exception {
    for (String name : new String[] {"alpha", "zetan", "eta"}) {
      double value = field(ZipfianGenerator.class, name).getDouble(zipfian);
      out.printf("%s=%016x%n", name, Double.doubleToRawLongBits(value));
    }
  }

  // One file a subject.

  private void threadLocalRandom() throws Exception {
    open("thread_local_random.txt");
    ThreadLocalRandom random = ThreadLocalRandom.current();
    for (long seed : new long[] {0, 1, -1, 0x0123456789abcdefL}) {
      out.println("seed=" + seed);
      seed(seed);
      for (int i = 0; i < 5; i++) {
        out.printf("%016x %016x %d %d%n", random.nextLong(),
            Double.doubleToRawLongBits(random.nextDouble()), random.nextInt(1000), random.nextInt(64));
      }
    }
    close();
  }

  private void hashes() throws Exception {
    open("hashes.txt");
    Measurements.setProperties(new Properties());
    CoreWorkload workload = new CoreWorkload();
    Method build = CoreWorkload.class.getDeclaredMethod("buildKeyName", long.class);
    build.setAccessible(true);
    Field ordered = field(CoreWorkload.class, "orderedinserts");
    Field padding = field(CoreWorkload.class, "zeropadding");
    long[] special = {0, 1, 2, 9, 10, 99, 100, 255, 256, 65535, 65536, 999999, 1000000, 0x7fffffffL, 0x80000000L,
        0xffffffffL, 0x100000000L, 9999999999L, 10000000000L, 1L << 40, 1L << 52, 1L << 62, Long.MAX_VALUE};
    for (int i = 0; i < special.length + 500; i++) {
      long number = i < special.length ? special[i] : (i - special.length) * 20082008L;
      out.print(number + " " + site.ycsb.Utils.fnvhash64(number));
      for (int digits : new int[] {1, 12, 20}) {
        padding.setInt(workload, digits);
        for (boolean order : new boolean[] {false, true}) {
          if (digits == 1 || i < special.length) {
            ordered.setBoolean(workload, order);
            out.print(" " + build.invoke(workload, number));
          }
        }
      }
      out.println();
    }
    String text = "";
    for (int i = 0; i < 64; i++) {
      out.println(text.length() + " " + text.hashCode());
      text += (char) (32 + (i * 37) % 95);
    }
    close();
  }

  private void integrity() throws Exception {
    open("integrity.txt");
    CoreWorkload workload = new CoreWorkload();
    Method build = CoreWorkload.class.getDeclaredMethod("buildDeterministicValue", String.class, String.class);
    build.setAccessible(true);
    Field length = field(CoreWorkload.class, "fieldlengthgenerator");
    String[] keys = {"user0", "user6284781860667377211", "user000000000042"};
    for (String key : keys) {
      for (String field : new String[] {"field0", "field9", "f"}) {
        for (int size : new int[] {0, 1, 5, 12, 13, 31, 32, 100, 1000}) {
          length.set(workload, new ConstantIntegerGenerator(size));
          out.println(key + " " + field + " " + size + " " + build.invoke(workload, key, field));
        }
      }
    }
    close();
  }

  private void values() throws Exception {
    open("values.txt");
    for (int size : new int[] {0, 1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 47, 48, 49, 60, 96, 100, 1000}) {
      for (long seed : new long[] {size, -1}) {
        seed(seed);
        byte[] value = new RandomByteIterator(size).toArray();
        out.print(size + " " + seed + " ");
        for (byte b : value) {
          out.printf("%02x", b);
        }
        out.println();
      }
    }
    close();
  }

  private void zipfian() throws Exception {
    open("zipfian.txt");
    Object[][] cases = {{0L, 0L, .99}, {0L, 1L, .99}, {0L, 2L, .99}, {1L, 100L, .99}, {0L, 999L, .99}, {5L, 65004L, .99},
        {0L, 999L, .5}, {0L, 999L, 0.}, {10L, 10009L, .75}, {0L, 999999L, .99}};
    for (Object[] c : cases) {
      long min = (Long) c[0];
      long max = (Long) c[1];
      double theta = (Double) c[2];
      out.println("min=" + min + " max=" + max + " theta=" + theta + " seed=" + max);
      seed(max);
      ZipfianGenerator zipfian = new ZipfianGenerator(min, max, theta);
      if (max < 65536 && max > 1) {
        constants(zipfian);
      }
      draws(400, zipfian::nextValue);
      digest(100_000, zipfian::nextValue);
    }
    // The number of items grows, and is never taken back.
    Method nextLong = ZipfianGenerator.class.getDeclaredMethod("nextLong", long.class);
    nextLong.setAccessible(true);
    seed(77);
    ZipfianGenerator zipfian = new ZipfianGenerator(100);
    out.println("items from 100 in steps of 7, every tenth draw of 50 items, seed=77");
    long[] turn = {0};
    draws(1000, () -> {
      long items = turn[0] % 10 == 9 ? 50 : 100 + 7 * turn[0];
      turn[0]++;
      try {
        return (Long) nextLong.invoke(zipfian, items);
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException(e);
      }
    });
    constants(zipfian);
    close();
  }

  private void scrambled() throws Exception {
    open("scrambled.txt");
    long[][] cases = {{0, 999, 10000}, {5, 100004, 6000}, {1000, 1001000, 4000}, {0, 1000000000L, 3000},
        {0, 0, 20}, {3, 4, 100}, {0, 999_999_999_999L, 500}};
    for (long[] c : cases) {
      out.println("min=" + c[0] + " max=" + c[1] + " seed=" + c[2]);
      seed(c[2]);
      ScrambledZipfianGenerator scrambled = new ScrambledZipfianGenerator(c[0], c[1]);
      constants((ZipfianGenerator) field(ScrambledZipfianGenerator.class, "gen").get(scrambled));
      draws((int) c[2], scrambled::nextValue);
      digest(1_000_000, scrambled::nextValue);
    }
    close();
  }

  private void latest() throws Exception {
    open("latest.txt");
    // With 2 or 3 records to begin with, and inserts, YCSB draws keys that do
    // not exist, negative ones among them: not asked for.
    for (long records : new long[] {1, 4, 1000, 50000, 200000}) {
      out.println("records=" + records + " seed=" + records);
      seed(records);
      AcknowledgedCounterGenerator counter = new AcknowledgedCounterGenerator(records);
      SkewedLatestGenerator latest = new SkewedLatestGenerator(counter);
      draws(500, latest::nextValue);
      // An insert before each draw, then a thousand at once.
      draws(500, () -> {
        counter.acknowledge(counter.nextValue());
        return latest.nextValue();
      });
      for (int i = 0; i < 1000; i++) {
        counter.acknowledge(counter.nextValue());
      }
      draws(200, latest::nextValue);
      digest(100_000, latest::nextValue);
    }
    close();
  }

  private void ranges() throws Exception {
    open("ranges.txt");
    // A part that is empty and hit divides by zero in Java: not asked for.
    Object[][] hotspots = {{0L, 999L, .2, .8}, {10L, 10L, 0., 0.}, {100L, 1099L, .5, .1}, {0L, 99999L, .01, .99},
        {7L, 18L, 0., 0.}, {0L, 2L, .5, 1.}};
    for (Object[] c : hotspots) {
      out.println("hotspot " + c[0] + " " + c[1] + " " + c[2] + " " + c[3]);
      HotspotIntegerGenerator hotspot =
          new HotspotIntegerGenerator((Long) c[0], (Long) c[1], (Double) c[2], (Double) c[3]);
      seed(11);
      draws(200, hotspot::nextValue);
      digest(100_000, hotspot::nextValue);
    }
    double[][] exponentials = {{95, 1000 * .8571428571}, {50, 100}, {99.9, 1e9}};
    for (double[] c : exponentials) {
      out.println("exponential " + c[0] + " " + c[1]);
      ExponentialGenerator exponential = new ExponentialGenerator(c[0], c[1]);
      out.printf("gamma=%016x%n", Double.doubleToRawLongBits(field(ExponentialGenerator.class, "gamma").getDouble(exponential)));
      seed(12);
      draws(400, () -> exponential.nextValue().longValue());
      digest(100_000, () -> exponential.nextValue().longValue());
    }
    long[][] uniforms = {{0, 9}, {5, 5}, {100, 1000000}, {0, 0x7fffffffffffL}};
    for (long[] c : uniforms) {
      out.println("uniform " + c[0] + " " + c[1]);
      UniformLongGenerator uniform = new UniformLongGenerator(c[0], c[1]);
      seed(13);
      draws(200, uniform::nextValue);
      digest(100_000, uniform::nextValue);
    }
    out.println("sequential 3 9");
    SequentialGenerator sequential = new SequentialGenerator(3, 9);
    draws(20, sequential::nextLong);
    close();
  }

  private void lengths() throws Exception {
    open("lengths.txt");
    double[][] weights = {{.95, .05}, {1, 2, 3}, {.1, .2, .3, .4}, {0, 1, 0}, {1e-9, 1, 1e9}};
    for (double[] weight : weights) {
      out.print("discrete");
      DiscreteGenerator discrete = new DiscreteGenerator();
      for (int i = 0; i < weight.length; i++) {
        out.print(" " + weight[i]);
        discrete.addValue(weight[i], Integer.toString(i));
      }
      out.println();
      seed(14);
      draws(200, () -> Long.parseLong(discrete.nextValue()));
      digest(100_000, () -> Long.parseLong(discrete.nextValue()));
    }
    String[] files = {"BlockSize\t10\n0\t5\n1\t0\n2\t3\n3\t2\n", "BlockSize\t1\n0\t7\n", "BlockSize\t100\n0\t0\n1\t4\n2\t0\n3\t1\n",
        "BlockSize\t5\n0\t1000\n1\t500\n2\t250\n3\t125\n4\t60\n5\t30\n6\t15\n7\t8\n8\t4\n9\t2\n"};
    for (String text : files) {
      Path file = Files.createTempFile("histogram", ".txt");
      Files.writeString(file, text);
      HistogramGenerator histogram = new HistogramGenerator(file.toString());
      Files.delete(file);
      out.println("histogram " + text.replace("\n", ";").replace("\t", ","));
      out.printf("mean=%016x%n", Double.doubleToRawLongBits(histogram.mean()));
      seed(15);
      draws(200, histogram::nextValue);
      digest(100_000, histogram::nextValue);
    }
    close();
  }

  private void properties() throws Exception {
    open("properties.txt");
    Properties properties = new Properties();
    try (FileInputStream in = new FileInputStream(directory.resolve("nasty.properties").toFile())) {
      properties.load(in);
    }
    Map<String, String> sorted = new TreeMap<>();
    properties.forEach((key, value) -> sorted.put((String) key, (String) value));
    sorted.forEach((key, value) -> out.println(escaped(key) + " -> " + escaped(value)));
    close();
  }

  /** Printable ASCII but the backslash as it is, all else as the number of a UTF-16 unit. */
  private static String escaped(String text) {
    StringBuilder escaped = new StringBuilder("\"");
    for (char c : text.toCharArray()) {
      if (c >= ' ' && c <= '~' && c != '\\') {
        escaped.append(c);
      } else {
        escaped.append(String.format("\\%04x", (int) c));
      }
    }
    return escaped.append('"').toString();
  }
}
