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
import serval.driver.Words;

/** A client's own batch writer, and a scanner an operation, as Accumulo has them. */
final class RowClient implements Client {
  /** Entries or rows brought by one call of a scanner. */
  private static final int BATCH = 1000;
  /** Where the server's row gathering stands among a table's iterators: after all of its own. */
  private static final int AFTER_ALL = 100;

  private final AccumuloClient accumulo;
  private final Settings settings;
  private final Text family;
  private final byte[] familyBytes;
  private String name;
  private BatchWriter writer;
  /** Flushes that Serval has not been told of. */
  private final Queue<Flush> flushes = new ArrayDeque<>();
  /** Writes given to the writer since it was last known to be empty. */
  private long unsure;

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
    Outcome go() throws Exception;
  }

  private static Outcome of(Operation operation) {
    try {
      return operation.go();
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
        if (!found && fields != null && isThere(table, key)) {
          reply.begin();
          found = true;
        }
        return found ? Outcome.OK : Outcome.NOT_FOUND;
      }
    });
  }

  /** Whether a record of which the fields asked for were not found has others. */
  private boolean isThere(String table, String key) throws Exception {
    try (Scanner scanner = scanner(table, null)) {
      scanner.setRange(new Range(new Text(key)));
      return scanner.iterator().hasNext();
    }
  }

  @Override
  public Outcome scan(String table, String start, long count, List<String> fields, Reply reply) {
    return of(() -> {
      // All fields, since a row of which none is asked for is a record too.
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
      // A delete marks each field, so it must know them; those still in the buffer too.
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
      unsure = 0;
    }
    if (writer == null) {
      writer = accumulo.createBatchWriter(table, settings.writer);
      name = table;
    }
  }

  private Outcome write(String table, Mutation mutation) throws TableNotFoundException {
    try {
      use(table);
      unsure++;
      writer.addMutation(mutation);
      if (settings.buffering) {
        return Outcome.of(Status.BATCHED_OK, "");
      }
      writer.flush();
      unsure = 0;
      return Outcome.OK;
    } catch (MutationsRejectedException rejected) {
      return lost(rejected);
    }
  }

  /** Sends what is buffered. */
  private Outcome flush() {
    if (writer == null || unsure == 0) {
      return Outcome.OK;
    }
    long start = System.nanoTime();
    long count = unsure;
    Outcome outcome;
    try {
      writer.flush();
      unsure = 0;
      outcome = Outcome.OK;
    } catch (MutationsRejectedException rejected) {
      outcome = lost(rejected);
    }
    return told(outcome, count, start);
  }

  /**
   * Tells of a flush that the client has waited for, and leaves its failure to that. What Accumulo's writer sends in the
   * background it tells nobody of.
   */
  private Outcome told(Outcome outcome, long count, long start) {
    if (!settings.tellsFlushes || count == 0) {
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
   * What became of the writer's writes is not known any more, and it takes no others: the next write opens a new one. Accumulo
   * does not say how many failed.
   */
  private Outcome lost(MutationsRejectedException rejected) {
    long most = unsure;
    BatchWriter old = writer;
    writer = null;
    unsure = 0;
    if (old != null) {
      try {
        old.close();
      } catch (MutationsRejectedException again) {
        // It says again what is told here.
      }
    }
    String words = Words.withCause(rejected);
    if (settings.buffering) {
      words = "of " + most + " buffered writes some or all have failed: " + words;
    }
    return Outcome.of(Failures.status(rejected), words);
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
      long count = unsure;
      unsure = 0;
      Outcome outcome;
      try {
        old.close();
        outcome = Outcome.OK;
      } catch (MutationsRejectedException rejected) {
        String words = "of " + count + " buffered writes some or all have failed: " + Words.withCause(rejected);
        outcome = Outcome.of(Failures.status(rejected), settings.buffering ? words : Words.withCause(rejected));
      }
      return told(outcome, count, start);
    });
  }
}
