package serval.driver;

import java.lang.reflect.InvocationTargetException;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.Vector;
import site.ycsb.ByteArrayByteIterator;
import site.ycsb.ByteIterator;
import site.ycsb.DB;

/** Any YCSB binding: a class that extends site.ycsb.DB. It is called as YCSB calls it, with one instance per client. */
final class YcsbStore implements Store {
  private final Class<? extends DB> type;
  private final Properties properties;

  YcsbStore(String className, Properties properties) {
    this.properties = properties;
    Class<?> found;
    try {
      found = Class.forName(className);
    } catch (ExceptionInInitializerError error) {
      throw new IllegalArgumentException(
          "the class " + className + " cannot be initialised: " + Worker.describe(error.getCause()));
    } catch (ClassNotFoundException | LinkageError error) {
      throw new IllegalArgumentException(
          "the class " + className + " is not on the class path (java.classpath), or needs one that is not: "
              + Worker.describe(error));
    }
    if (!DB.class.isAssignableFrom(found)) {
      throw new IllegalArgumentException("the class " + className + " is no binding: it does not extend site.ycsb.DB");
    }
    type = found.asSubclass(DB.class);
  }

  @Override
  public String name() {
    return type.getName();
  }

  @Override
  public Map<String, String> facts() {
    Map<String, String> facts = new HashMap<>();
    facts.put("class", type.getName());
    facts.put("java", System.getProperty("java.version"));
    facts.put("jvm", System.getProperty("java.vm.name"));
    return facts;
  }

  @Override
  public void prepare(String table, List<String> fields, boolean load) {
    // YCSB's bindings have no such step; they prepare themselves in init.
  }

  @Override
  public Client open(int number) throws Exception {
    DB db;
    try {
      db = type.getDeclaredConstructor().newInstance();
    } catch (InvocationTargetException error) {
      throw error.getCause() instanceof Exception cause ? cause : error;
    } catch (ReflectiveOperationException error) {
      throw new IllegalArgumentException(
          type.getName() + " cannot be made: a binding is a public class with a public constructor without arguments", error);
    }
    // Each client gets a copy, because some bindings write into it.
    Properties own = new Properties();
    own.putAll(properties);
    db.setProperties(own);
    db.init();
    return new YcsbClient(db);
  }

  private record YcsbClient(DB db) implements Client {
    private static Set<String> set(List<String> fields) {
      return fields == null ? null : new HashSet<>(fields);
    }

    private static Outcome outcome(site.ycsb.Status status) {
      if (status == null) {
        return Outcome.of(Client.Status.ERROR, "the binding returns no status");
      }
      if (status.equals(site.ycsb.Status.OK)) {
        return Outcome.OK;
      }
      for (Client.Status known : Client.Status.values()) {
        if (known.name().equals(status.getName())) {
          boolean silent = known == Client.Status.NOT_FOUND || known == Client.Status.BATCHED_OK;
          return Outcome.of(known, silent || status.getDescription() == null ? "" : status.getDescription());
        }
      }
      // A status of the binding's own.
      return Outcome.of(Client.Status.ERROR, status.getName() + ": " + status.getDescription());
    }

    private static void put(Map<String, ByteIterator> values, Reply reply) {
      reply.begin();
      values.forEach((name, value) -> reply.field(name, value.toArray()));
    }

    private static Map<String, ByteIterator> iterators(Map<String, byte[]> values) {
      Map<String, ByteIterator> iterators = new HashMap<>(2 * values.size());
      values.forEach((name, value) -> iterators.put(name, new ByteArrayByteIterator(value)));
      return iterators;
    }

    @Override
    public Outcome read(String table, String key, List<String> fields, Reply reply) {
      Map<String, ByteIterator> values = new HashMap<>();
      Outcome outcome = outcome(db.read(table, key, set(fields), values));
      if (outcome == Outcome.OK) {
        put(values, reply);
      }
      return outcome;
    }

    @Override
    public Outcome update(String table, String key, Map<String, byte[]> values) {
      return outcome(db.update(table, key, iterators(values)));
    }

    @Override
    public Outcome insert(String table, String key, Map<String, byte[]> values) {
      return outcome(db.insert(table, key, iterators(values)));
    }

    @Override
    public Outcome scan(String table, String start, long count, List<String> fields, Reply reply) {
      Vector<HashMap<String, ByteIterator>> records = new Vector<>();
      int most = (int) Math.min(count, Integer.MAX_VALUE);
      Outcome outcome = outcome(db.scan(table, start, most, set(fields), records));
      if (outcome == Outcome.OK) {
        // A binding may return more records than requested, which the protocol does not allow.
        records.stream().limit(count).forEach(values -> put(values, reply));
      }
      return outcome;
    }

    @Override
    public Outcome delete(String table, String key) {
      return outcome(db.delete(table, key));
    }

    @Override
    public Outcome close() throws Exception {
      db.cleanup();
      return Outcome.OK;
    }
  }
}
