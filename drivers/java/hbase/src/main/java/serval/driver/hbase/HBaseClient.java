package serval.driver.hbase;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.BufferedMutator;
import org.apache.hadoop.hbase.client.BufferedMutatorParams;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Mutation;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.RetriesExhaustedWithDetailsException;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.filter.Filter;
import org.apache.hadoop.hbase.filter.FilterList;
import org.apache.hadoop.hbase.filter.PageFilter;
import org.apache.hadoop.hbase.util.Bytes;
import serval.driver.Client;

/** One client: a table's handle, and with buffering a write buffer of its own. */
final class HBaseClient implements Client {
  private final Connection connection;
  private final Settings settings;
  private final Function<String, TableName> names;
  /** The table of the last operation; a workload has one. */
  private String tableName = "";
  private Table table;
  private BufferedMutator buffer;
  private final Lost lost = new Lost();
  /** What the buffer holds, by HBase's own count. */
  private final Buffered buffered = new Buffered();
  /** Those that Serval has not been told of. */
  private final Queue<Flush> flushes = new ConcurrentLinkedQueue<>();
  private final ScheduledExecutorService timer;

  /** Writes and bytes since the buffer was last sent, and how often it was sent. */
  private static final class Buffered {
    long writes;
    long bytes;
    long number;
  }

  HBaseClient(
      Connection connection, Settings settings, Function<String, TableName> names, ScheduledExecutorService timer) {
    this.timer = timer;
    this.connection = connection;
    this.settings = settings;
    this.names = names;
  }

  /** Buffered writes that were not done and that nobody has been told of. */
  private static final class Lost implements BufferedMutator.ExceptionListener {
    /** How many, and why the first was not. */
    record Writes(long count, Outcome why) {}

    private long count;
    private Throwable first;

    @Override
    public synchronized void onException(RetriesExhaustedWithDetailsException error, BufferedMutator mutator) {
      count += Math.max(error.getNumExceptions(), 1);
      if (first == null) {
        first = error.getNumExceptions() > 0 ? error.getCause(0) : error;
      }
    }

    /** So many were not done, for a reason that the listener was not told. */
    synchronized void failed(long writes, Throwable error) {
      count += writes;
      if (first == null) {
        first = error;
      }
    }

    /** Those to tell of now, or null. */
    synchronized Writes take() {
      if (count == 0) {
        return null;
      }
      Writes writes = new Writes(count, Failures.outcome(first));
      count = 0;
      first = null;
      return writes;
    }

    /** The same, as the failure of an operation. */
    Outcome failure() {
      Writes writes = take();
      return writes == null
          ? null
          : Outcome.of(
              Status.values()[writes.why.status()],
              writes.count + " buffered writes were not done: " + writes.why.message());
    }
  }

  private interface Operation {
    Outcome go() throws IOException;
  }

  /** Does an operation on a table. What buffered writes have come to comes before how it ended itself. */
  private Outcome on(String name, Operation operation) {
    Outcome outcome;
    try {
      if (!tableName.equals(name)) {
        use(name);
      }
      outcome = operation.go();
    } catch (IOException | IllegalArgumentException error) {
      outcome = Failures.outcome(error);
    }
    Outcome buffered = settings.buffering && !settings.tellsFlushes ? lost.failure() : null;
    return buffered == null ? outcome : buffered;
  }

  private void use(String name) throws IOException {
    closeTable();
    TableName full = names.apply(name);
    table = connection.getTable(full);
    if (settings.buffering) {
      BufferedMutatorParams parameters =
          new BufferedMutatorParams(full).writeBufferSize(settings.bufferBytes).listener(lost);
      buffer = connection.getBufferedMutator(parameters);
    }
    tableName = name;
  }

  private void closeTable() throws IOException {
    tableName = "";
    try {
      if (buffer != null) {
        long start = System.nanoTime();
        long count = taken();
        try {
          buffer.close();
        } finally {
          tell(count, start);
        }
      }
    } finally {
      buffer = null;
      if (table != null) {
        table.close();
      }
      table = null;
    }
  }

  @Override
  public Outcome read(String table, String key, List<String> fields, Reply reply) {
    // HBase has no empty keys, so no record has one.
    return key.isEmpty() ? Outcome.NOT_FOUND : on(table, () -> read(key, fields, reply));
  }

  private Outcome read(String key, List<String> fields, Reply reply) throws IOException {
    Get get = new Get(Bytes.toBytes(key));
    if (fields == null) {
      get.addFamily(settings.family);
    } else {
      fields.forEach(field -> get.addColumn(settings.family, Bytes.toBytes(field)));
    }
    Result result = table.get(get);
    if (result.isEmpty()) {
      return Outcome.NOT_FOUND;
    }
    put(result, reply);
    return Outcome.OK;
  }

  private static void put(Result result, Reply reply) {
    reply.begin();
    for (Cell cell : result.rawCells()) {
      String name = Bytes.toString(cell.getQualifierArray(), cell.getQualifierOffset(), cell.getQualifierLength());
      reply.field(name, CellUtil.cloneValue(cell));
    }
  }

  @Override
  public Outcome scan(String table, String start, long count, List<String> fields, Reply reply) {
    return on(table, () -> scan(start, (int) Math.min(count, Integer.MAX_VALUE), fields, reply));
  }

  private Outcome scan(String start, int most, List<String> fields, Reply reply) throws IOException {
    if (most == 0) {
      return Outcome.OK;
    }
    // In one answer if its size allows, as YCSB's binding asks.
    Scan scan = new Scan().withStartRow(Bytes.toBytes(start)).setCaching(most).setLimit(most);
    if (fields == null) {
      scan.addFamily(settings.family);
    } else {
      fields.forEach(field -> scan.addColumn(settings.family, Bytes.toBytes(field)));
    }
    Filter filter = filter(most);
    if (filter != null) {
      scan.setFilter(filter);
    }
    // All of it first: half a scan that then fails is no answer.
    List<Result> results = new ArrayList<>();
    try (ResultScanner scanner = table.getScanner(scan)) {
      // A PageFilter counts a region at a time.
      for (Result result = scanner.next(); result != null; result = scanner.next()) {
        results.add(result);
        if (results.size() == most) {
          break;
        }
      }
    }
    results.forEach(result -> put(result, reply));
    return Outcome.OK;
  }

  /** As YCSB's binding has them; null for none. */
  private Filter filter(int most) {
    FilterList filters = new FilterList(FilterList.Operator.MUST_PASS_ALL);
    if (settings.pageFilter) {
      filters.addFilter(new PageFilter(most));
    }
    if (settings.valueFilter != null) {
      filters.addFilter(settings.valueFilter);
    }
    return filters.getFilters().isEmpty() ? null : filters;
  }

  @Override
  public Outcome update(String table, String key, Map<String, byte[]> values) {
    return on(table, () -> {
      Put put = new Put(Bytes.toBytes(key));
      values.forEach((field, value) -> put.addColumn(settings.family, Bytes.toBytes(field), value));
      return write(put);
    });
  }

  @Override
  public Outcome insert(String table, String key, Map<String, byte[]> values) {
    return update(table, key, values);
  }

  @Override
  public Outcome delete(String table, String key) {
    return key.isEmpty() ? Outcome.OK : on(table, () -> write(new Delete(Bytes.toBytes(key))));
  }

  private Outcome write(Mutation mutation) throws IOException {
    mutation.setDurability(settings.durability);
    if (buffer != null) {
      writeBuffered(mutation);
    } else if (mutation instanceof Put put) {
      table.put(put);
    } else {
      table.delete((Delete) mutation);
    }
    return Outcome.OK;
  }

  /** HBase's client sends its buffer, and waits, when a write makes it more than its size. */
  private void writeBuffered(Mutation mutation) throws IOException {
    long count;
    synchronized (buffered) {
      if (buffered.writes == 0 && settings.bufferMilliseconds > 0) {
        arm(buffer);
      }
      buffered.writes++;
      buffered.bytes += mutation.heapSize();
      if (buffered.bytes <= settings.bufferBytes) {
        // Here, so that a flush has in it what it counts.
        buffer.mutate(mutation);
        return;
      }
      count = taken();
    }
    long start = System.nanoTime();
    try {
      buffer.mutate(mutation);
    } finally {
      tell(count, start);
    }
  }

  /** Has the buffer sent when its first write is old. HBase's own timer would not say that it did. */
  private void arm(BufferedMutator mutator) {
    long number = buffered.number;
    timer.schedule(() -> flushOld(mutator, number), settings.bufferMilliseconds, TimeUnit.MILLISECONDS);
  }

  /** Sends a buffer that nobody has sent since its first write. What comes meanwhile is counted anew. */
  private void flushOld(BufferedMutator mutator, long number) {
    long count;
    synchronized (buffered) {
      if (buffered.number != number) {
        return;
      }
      count = taken();
    }
    long start = System.nanoTime();
    try {
      mutator.flush();
    } catch (IOException error) {
      lost.failed(count, error);
    }
    tell(count, start);
  }

  /** How many writes the buffer holds, which are now sent. */
  private long taken() {
    synchronized (buffered) {
      long count = buffered.writes;
      buffered.writes = 0;
      buffered.bytes = 0;
      buffered.number++;
      return count;
    }
  }

  /** Notes a flush that has ended. */
  private void tell(long count, long start) {
    if (count == 0 || !settings.tellsFlushes) {
      return;
    }
    long now = System.nanoTime();
    Lost.Writes failed = lost.take();
    flushes.add(
        failed == null
            ? new Flush(Outcome.OK, now - start, now, count, 0)
            : new Flush(failed.why(), now - start, now, Math.max(count, failed.count()), failed.count()));
  }

  @Override
  public Flush flushed() {
    return flushes.poll();
  }

  /** Sends what is buffered. */
  @Override
  public Outcome close() {
    Outcome outcome = Outcome.OK;
    try {
      closeTable();
    } catch (IOException error) {
      outcome = Failures.outcome(error);
    }
    Outcome buffered = lost.failure();
    return buffered == null ? outcome : buffered;
  }
}
