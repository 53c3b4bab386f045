package serval.driver.accumulo;

import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.TimeUnit;
import org.apache.accumulo.core.client.AccumuloClient;
import org.apache.accumulo.core.client.BatchWriter;
import org.apache.accumulo.core.client.IteratorSetting;
import org.apache.accumulo.core.client.MutationsRejectedException;
import org.apache.accumulo.core.client.Scanner;
import org.apache.accumulo.core.client.TableNotFoundException;
import org.apache.accumulo.core.data.Key;
import org.apache.accumulo.core.data.Mutation;
import org.apache.accumulo.core.data.Range;
import org.apache.accumulo.core.data.Value;
import org.apache.accumulo.core.iterators.user.WholeRowIterator;
import org.apache.accumulo.core.security.Authorizations;
import org.apache.hadoop.io.Text;
import serval.driver.Client;
import serval.driver.ErrorText;

/** A client with a batch writer of its own, and a scanner per read operation. */
final class RowClient implements Client {
  /** Most rows that a scanner fetches with one call. */
  private static final int BATCH = 1000;
  /** Priority of the iterator that gathers rows on the server: after all of the table's own iterators. */
  private static final int AFTER_ALL = 100;

  private final AccumuloClient accumulo;
  private final Settings settings;
  private final Text family;
  private final byte[] familyBytes;
  private String name;
  private BatchWriter writer;
  /** Flushes that were not reported to Serval yet. */
  private final Queue<Flush> flushes = new ArrayDeque<>();
  /** Number of writes since the writer was last known to be empty. */
  private long unacknowledged;

  RowClient(AccumuloClient accumulo, Settings settings) {
    this.accumulo = accumulo;
    this.settings = settings;
    family = new Text(settings.family);
    familyBytes = utf8(settings.family);
  }

  private static byte[] utf8(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private interface Operation {
    Outcome call() throws Exception;
  }

  private static Outcome of(Operation operation) {
    try {
      return operation.call();
    } catch (Exception error) {
      return Failures.outcome(error);
    }
  }

  private Scanner scanner(String table, List<String> fields) throws Exception {
    Scanner scanner = accumulo.createScanner(table, Authorizations.EMPTY);
    scanner.setTimeout(settings.timeoutMilliseconds, TimeUnit.MILLISECONDS);
    if (fields == null) {
      scanner.fetchColumnFamily(family);
    } else {
      fields.forEach(field -> scanner.fetchColumn(family, new Text(field)));
    }
    return scanner;
  }

  private static void put(Key key, Value value, Reply reply) {
    byte[] field = key.getColumnQualifierData().toArray();
    reply.field(new String(field, StandardCharsets.UTF_8), value.get());
  }

  @Override
  public Outcome read(String table, String key, List<String> fields, Reply reply) {
    return of(() -> {
      try (Scanner scanner = scanner(table, fields)) {
        scanner.setRange(new Range(new Text(key)));
        boolean found = false;
        for (Map.Entry<Key, Value> entry : scanner) {
          if (!found) {
            reply.begin();
            found = true;
          }
          put(entry.getKey(), entry.getValue(), reply);
        }
        if (!found && fields != null && exists(table, key)) {
          reply.begin();
          found = true;
        }
        return found ? Outcome.OK : Outcome.NOT_FOUND;
      }
    });
  }

  /** Returns whether a record has any field. */
  private boolean exists(String table, String key) throws Exception {
    try (Scanner scanner = scanner(table, null)) {
      scanner.setRange(new Range(new Text(key)));
      return scanner.iterator().hasNext();
    }
  }

  @Override
  public Outcome scan(String table, String start, long count, List<String> fields, Reply reply) {
    return of(() -> {
      // Fetches all fields, because a row without any of the requested ones is a record too.
      try (Scanner scanner = scanner(table, null)) {
        scanner.setRange(new Range(new Text(start), null));
        scanner.setBatchSize((int) Math.max(1, Math.min(count, BATCH)));
        scanner.addScanIterator(new IteratorSetting(AFTER_ALL, WholeRowIterator.class));
        long left = count;
        for (Map.Entry<Key, Value> row : scanner) {
          if (left-- == 0) {
            break;
          }
          reply.begin();
          WholeRowIterator.decodeRow(row.getKey(), row.getValue()).forEach((key, value) -> {
            if (fields == null || fields.contains(key.getColumnQualifier().toString())) {
              put(key, value, reply);
            }
          });
          if (left == 0) {
            break;
          }
        }
        return Outcome.OK;
      }
    });
  }

  @Override
  public Outcome update(String table, String key, Map<String, byte[]> values) {
    return of(() -> {
      Mutation mutation = new Mutation(utf8(key));
      values.forEach((field, value) -> mutation.put(familyBytes, utf8(field), value));
      if (values.isEmpty()) {
        throw new IllegalArgumentException("Accumulo has no records without fields");
      }
      return write(table, mutation);
    });
  }

  @Override
  public Outcome insert(String table, String key, Map<String, byte[]> values) {
    return update(table, key, values);
  }

  @Override
  public Outcome delete(String table, String key) {
    return of(() -> {
      // A delete writes a marker for each field, so it must read them all, including buffered ones.
      Outcome flushed = flush();
      if (flushed != Outcome.OK) {
        return flushed;
      }
      Mutation mutation = new Mutation(utf8(key));
      try (Scanner scanner = scanner(table, null)) {
        scanner.setRange(new Range(new Text(key)));
        for (Map.Entry<Key, Value> entry : scanner) {
          mutation.putDelete(familyBytes, entry.getKey().getColumnQualifierData().toArray());
        }
      }
      return mutation.size() == 0 ? Outcome.NOT_FOUND : write(table, mutation);
    });
  }

  private void use(String table) throws TableNotFoundException, MutationsRejectedException {
    if (writer != null && !table.equals(name)) {
      BatchWriter old = writer;
      writer = null;
      old.close();
      unacknowledged = 0;
    }
    if (writer == null) {
      writer = accumulo.createBatchWriter(table, settings.writer);
      name = table;
    }
  }

  private Outcome write(String table, Mutation mutation) throws TableNotFoundException {
    try {
      use(table);
      unacknowledged++;
      writer.addMutation(mutation);
      if (settings.buffering) {
        return Outcome.of(Status.BATCHED_OK, "");
      }
      writer.flush();
      unacknowledged = 0;
      return Outcome.OK;
    } catch (MutationsRejectedException rejected) {
      return discardWriter(rejected);
    }
  }

  /** Sends the buffered writes. */
  private Outcome flush() {
    if (writer == null || unacknowledged == 0) {
      return Outcome.OK;
    }
    long start = System.nanoTime();
    long count = unacknowledged;
    Outcome outcome;
    try {
      writer.flush();
      unacknowledged = 0;
      outcome = Outcome.OK;
    } catch (MutationsRejectedException rejected) {
      outcome = discardWriter(rejected);
    }
    return report(outcome, count, start);
  }

  /**
   * Queues the report of a flush that the client has waited for, and returns OK, because the report carries a failure. If
   * flushes are not reported, returns the flush's outcome. Accumulo's writer does not report its background flushes.
   */
  private Outcome report(Outcome outcome, long count, long start) {
    if (!settings.reportsFlushes || count == 0) {
      return outcome;
    }
    long now = System.nanoTime();
    flushes.add(new Flush(outcome, now - start, now, count, outcome == Outcome.OK ? 0 : count));
    return Outcome.OK;
  }

  @Override
  public Flush flushed() {
    return flushes.poll();
  }

  /**
   * Discards a writer after a rejection: it accepts no more writes, so the next write opens a new one. Accumulo does not
   * report how many buffered writes failed.
   */
  private Outcome discardWriter(MutationsRejectedException rejected) {
    long count = unacknowledged;
    BatchWriter old = writer;
    writer = null;
    unacknowledged = 0;
    if (old != null) {
      try {
        old.close();
      } catch (MutationsRejectedException again) {
        // It repeats the rejection that is reported here.
      }
    }
    String message = ErrorText.withCause(rejected);
    if (settings.buffering) {
      message = "some or all of " + count + " buffered writes failed: " + message;
    }
    return Outcome.of(Failures.status(rejected), message);
  }

  @Override
  public Outcome close() {
    return of(() -> {
      if (writer == null) {
        return Outcome.OK;
      }
      BatchWriter old = writer;
      writer = null;
      long start = System.nanoTime();
      long count = unacknowledged;
      unacknowledged = 0;
      Outcome outcome;
      try {
        old.close();
        outcome = Outcome.OK;
      } catch (MutationsRejectedException rejected) {
        String message = ErrorText.withCause(rejected);
        if (settings.buffering) {
          message = "some or all of " + count + " buffered writes failed: " + message;
        }
        outcome = Outcome.of(Failures.status(rejected), message);
      }
      return report(outcome, count, start);
    });
  }
}
