import java.util.*;
import site.ycsb.*;
/** Ends operations with the statuses of its properties, in turn. */
public class MixedDB extends DB {
  private final Map<String, Integer> turn = new HashMap<>();
  private Status next(String op) {
    String[] names = getProperties().getProperty("mixed." + op, "OK").split(",");
    int n = turn.merge(op, 1, Integer::sum) - 1;
    try { return (Status) Status.class.getField(names[n % names.length]).get(null); }
    catch (ReflectiveOperationException e) { throw new RuntimeException(e); }
  }
  public Status read(String t, String k, Set<String> f, Map<String, ByteIterator> r) { return next("read"); }
  public Status scan(String t, String k, int n, Set<String> f, Vector<HashMap<String, ByteIterator>> r) {
    Status s = next("scan");
    if (s == Status.OK) { r.add(new HashMap<>()); }
    else { r.add(new HashMap<>()); }
    return s;
  }
  public Status update(String t, String k, Map<String, ByteIterator> v) { return next("update"); }
  public Status insert(String t, String k, Map<String, ByteIterator> v) { return next("insert"); }
  public Status delete(String t, String k) { return next("delete"); }
}
