package serval.driver.hbase;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
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

  HBaseClient(Connection connection, Settings settings, Function<String, TableName> names) {
    this.connection = connection;
    this.settings = settings;
    this.names = names;
  }

  /** Buffered writes that were not done and that nobody has been told of. Flushes by time learn of them on a thread of HBase's. */
  private static final class Lost implements BufferedMutator.ExceptionListener {
    private long count;
    private Throwable first;

    @Override
    public synchronized void onException(RetriesExhaustedWithDetailsException error, BufferedMutator mutator) {
      count += Math.max(error.getNumExceptions(), 1);
      if (first == null) {
        first = error.getNumExceptions() > 0 ? error.getCause(0) : error;
      }
    }

    /** The failure to tell of now, or null. */
    synchronized Outcome take() {
      if (count == 0) {
        return null;
      }
      Outcome why = Failures.outcome(first);
      Outcome outcome = new Outcome(why.status(), count + " buffered writes were not done: " + why.message());
      count = 0;
      first = null;
      return outcome;
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
    Outcome buffered = settings.buffering ? lost.take() : null;
    return buffered == null ? outcome : buffered;
  }

  private void use(String name) throws IOException {
    closeTable();
    TableName full = names.apply(name);
    table = connection.getTable(full);
    if (settings.buffering) {
      BufferedMutatorParams parameters =
          new BufferedMutatorParams(full).writeBufferSize(settings.bufferBytes).listener(lost);
      if (settings.bufferMilliseconds > 0) {
        parameters.setWriteBufferPeriodicFlushTimeoutMs(settings.bufferMilliseconds);
        // HBase takes no less than 100 ms.
        parameters.setWriteBufferPeriodicFlushTimerTickMs(100);
      }
      buffer = connection.getBufferedMutator(parameters);
    }
    tableName = name;
  }

  private void closeTable() throws IOException {
    tableName = "";
    try {
      if (buffer != null) {
        buffer.close();
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
      buffer.mutate(mutation);
    } else if (mutation instanceof Put put) {
      table.put(put);
    } else {
      table.delete((Delete) mutation);
    }
    return Outcome.OK;
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
    Outcome buffered = lost.take();
    return buffered == null ? outcome : buffered;
  }
}
