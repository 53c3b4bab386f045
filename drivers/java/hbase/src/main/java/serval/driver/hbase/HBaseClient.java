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

/** A client with a table handle and, if writes are buffered, a write buffer of its own. */
final class HBaseClient implements Client {
  private final Connection connection;
  private final Settings settings;
  private final Function<String, TableName> names;
  /** Name of the open table. A workload has one table. */
  private String tableName = "";
  private Table table;
  private BufferedMutator buffer;
  private final FailedWrites failedWrites = new FailedWrites();
  /** Content of the write buffer, counted as HBase's client counts it. */
  private final BufferState buffered = new BufferState();
  /** Flushes that were not reported to Serval yet. */
  private final Queue<Flush> flushes = new ConcurrentLinkedQueue<>();
  private final ScheduledExecutorService timer;

  /** Writes and bytes since the last flush, and the number of flushes. */
  private static final class BufferState {
    long writes;
    long bytes;
    long flushes;
  }

  HBaseClient(
      Connection connection, Settings settings, Function<String, TableName> names, ScheduledExecutorService timer) {
    this.timer = timer;
    this.connection = connection;
    this.settings = settings;
    this.names = names;
  }

  /** Buffered writes that failed and were not reported yet. */
  private static final class FailedWrites implements BufferedMutator.ExceptionListener {
    /** Number of failed writes, and the outcome of the first. */
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

    /** Adds writes of a flush that failed without a call of the listener. */
    synchronized void add(long writes, Throwable error) {
      count += writes;
      if (first == null) {
        first = error;
      }
    }

    /** Returns the unreported failures and forgets them; null if there are none. */
    synchronized Writes take() {
      if (count == 0) {
        return null;
      }
      Writes writes = new Writes(count, Failures.outcome(first));
      count = 0;
      first = null;
      return writes;
    }

    /** Returns the unreported failures as the outcome of an operation; null if there are none. */
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
    Outcome call() throws IOException;
  }

  /**
   * Performs an operation on a table. If flushes are not reported separately, a failure of buffered writes replaces the
   * operation's own outcome.
   */
  private Outcome on(String name, Operation operation) {
    Outcome outcome;
    try {
      if (!tableName.equals(name)) {
        use(name);
      }
      outcome = operation.call();
    } catch (IOException | IllegalArgumentException error) {
      outcome = Failures.outcome(error);
    }
    Outcome failure = settings.buffering && !settings.reportsFlushes ? failedWrites.failure() : null;
    return failure == null ? outcome : failure;
  }

  private void use(String name) throws IOException {
    closeTable();
    TableName full = names.apply(name);
    table = connection.getTable(full);
    if (settings.buffering) {
      BufferedMutatorParams parameters =
          new BufferedMutatorParams(full).writeBufferSize(settings.bufferBytes).listener(failedWrites);
      buffer = connection.getBufferedMutator(parameters);
    }
    tableName = name;
  }

  private void closeTable() throws IOException {
    tableName = "";
    try {
      if (buffer != null) {
        long start = System.nanoTime();
        long count = takeCount();
        try {
          buffer.close();
        } finally {
          report(count, start);
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
    // HBase rejects empty keys, so no record has one.
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
    // Requests all rows in one answer, if its size allows, as YCSB's binding does.
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
    // Collects all rows before they go into the reply: a scan that fails must not return a part of them.
    List<Result> results = new ArrayList<>();
    try (ResultScanner scanner = table.getScanner(scan)) {
      // A PageFilter counts per region, so the scan may return more rows.
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

  /** Returns the filters of YCSB's binding; null for none. */
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

  /** Adds a write to the buffer. If the buffer then exceeds its size, HBase's client sends it and waits for the answers. */
  private void writeBuffered(Mutation mutation) throws IOException {
    long count;
    synchronized (buffered) {
      if (buffered.writes == 0 && settings.bufferMilliseconds > 0) {
        scheduleFlush(buffer);
      }
      buffered.writes++;
      buffered.bytes += mutation.heapSize();
      if (buffered.bytes <= settings.bufferBytes) {
        // Under the lock, so that a concurrent flush contains the writes that it counts.
        buffer.mutate(mutation);
        return;
      }
      count = takeCount();
    }
    long start = System.nanoTime();
    try {
      buffer.mutate(mutation);
    } finally {
      report(count, start);
    }
  }

  /** Schedules a flush for the age limit of the first write. HBase's own timer would not report its flushes. */
  private void scheduleFlush(BufferedMutator mutator) {
    long flushes = buffered.flushes;
    timer.schedule(() -> flushOld(mutator, flushes), settings.bufferMilliseconds, TimeUnit.MILLISECONDS);
  }

  /** Sends the buffer, unless it was sent since the flush was scheduled. Writes during the flush count for the next one. */
  private void flushOld(BufferedMutator mutator, long flushesBefore) {
    long count;
    synchronized (buffered) {
      if (buffered.flushes != flushesBefore) {
        return;
      }
      count = takeCount();
    }
    long start = System.nanoTime();
    try {
      mutator.flush();
    } catch (IOException error) {
      failedWrites.add(count, error);
    }
    report(count, start);
  }

  /** Returns the number of buffered writes, which the caller now sends, and resets it. */
  private long takeCount() {
    synchronized (buffered) {
      long count = buffered.writes;
      buffered.writes = 0;
      buffered.bytes = 0;
      buffered.flushes++;
      return count;
    }
  }

  /** Queues the report of a flush that has ended. */
  private void report(long count, long start) {
    if (count == 0 || !settings.reportsFlushes) {
      return;
    }
    long now = System.nanoTime();
    FailedWrites.Writes failed = failedWrites.take();
    flushes.add(
        failed == null
            ? new Flush(Outcome.OK, now - start, now, count, 0)
            : new Flush(failed.why(), now - start, now, Math.max(count, failed.count()), failed.count()));
  }

  @Override
  public Flush flushed() {
    return flushes.poll();
  }

  /** Sends the buffered writes and closes the table. */
  @Override
  public Outcome close() {
    Outcome outcome = Outcome.OK;
    try {
      closeTable();
    } catch (IOException error) {
      outcome = Failures.outcome(error);
    }
    Outcome failure = failedWrites.failure();
    return failure == null ? outcome : failure;
  }
}
