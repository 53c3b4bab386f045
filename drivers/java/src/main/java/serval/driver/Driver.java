package serval.driver;

import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.BufferUnderflowException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Serves any {@link Store} by the driver protocol (docs/driver-protocol.md), on standard input and output. */
public final class Driver {
  private static final int MAGIC = 0x4c565253;
  private static final int VERSION = 1;
  private static final int HELLO = 1;
  private static final int PREPARE = 2;
  private static final int OPEN = 3;
  private static final int OPEN_APART = 11;
  /** Capability bit: clients can have connections of their own. */
  private static final int APART = 1 << 6;
  private static final int WELCOME = 1;
  private static final int REFUSED = 2;
  /** Default time limit, s, for the exit after the end of the input. */
  private static final double GRACE = 10;
  /** Time after the limit, s, at which the driver halts itself. A living Serval kills it before and reports that. */
  private static final double HALT_DELAY = 1;

  /** Opens a store with the properties of the greeting. Exceptions have a message for the user. */
  public interface StoreOpener {
    Store open(Properties properties) throws Exception;
  }

  private final FrameReader in;
  private final AnswerWriter out;
  private final Map<Integer, Worker> workers = new HashMap<>();
  /** Workers of clients with connections of their own. Several may have the same number. */
  private final List<Worker> apart = new ArrayList<>();
  /** Thread that opens and prepares the store, so that the main thread sees the end of the input while a store hangs. */
  private final ExecutorService setupThread = Executors.newSingleThreadExecutor(task -> daemon("set-up", task));
  private volatile Store store;
  private volatile boolean reportsFlushes;
  private volatile double grace = GRACE;

  private Driver(FrameReader in, AnswerWriter out) {
    this.in = in;
    this.out = out;
  }

  /** Serves until the input ends, then exits. */
  public static void main(StoreOpener opener) throws Exception {
    try {
      serve(opener);
    } catch (Exception gone) {
      System.err.println(Worker.describe(gone));
      System.exit(1);
    }
    // Threads of a client library must not keep the process alive.
    System.exit(0);
  }

  /** Serves until the input ends. Output of libraries goes to standard error, because standard output is the protocol's. */
  private static void serve(StoreOpener opener) throws Exception {
    FileInputStream input = new FileInputStream(FileDescriptor.in);
    FileOutputStream output = new FileOutputStream(FileDescriptor.out);
    System.setOut(System.err);
    new Driver(new FrameReader(input), new AnswerWriter(output)).run(opener);
  }

  static Thread daemon(String name, Runnable task) {
    Thread thread = new Thread(task, name);
    thread.setDaemon(true);
    return thread;
  }

  private void run(StoreOpener opener) throws Exception {
    byte[] hello = in.next();
    if (hello == null) {
      return;
    }
    Future<?> ready = setupThread.submit(() -> orExit(() -> greet(new Body(hello), opener)));
    try {
      for (byte[] frame = in.next(); frame != null; frame = in.next()) {
        ready.get();
        Body body = new Body(frame);
        if (body.type == PREPARE) {
          ready = setupThread.submit(() -> orExit(() -> prepare(body)));
        } else {
          request(body, frame);
        }
      }
    } finally {
      // A store that hangs in close, or a client in the middle of an operation, must not keep the process alive.
      endBy(System.nanoTime() + (long) ((grace + HALT_DELAY) * 1e9));
      if (isDone(ready)) {
        end();
      }
    }
  }

  /** Returns whether the store is set up. Waits for a second, because the answer is sent before the task ends. */
  private static boolean isDone(Future<?> ready) throws Exception {
    try {
      ready.get(1, TimeUnit.SECONDS);
      return true;
    } catch (TimeoutException pending) {
      return false;
    }
  }

  /** A step of the set-up. Returns false if the driver cannot continue. */
  private interface Step {
    boolean call() throws Exception;
  }

  /** Performs a step. If it fails, exits, because the main thread waits for input that may not come. */
  private static void orExit(Step step) {
    try {
      if (!step.call()) {
        System.exit(0);
      }
    } catch (Throwable error) {
      System.err.println(Worker.describe(error));
      System.exit(1);
    }
  }

  /** Closes all clients and the store. */
  private void end() throws Exception {
    apart.addAll(workers.values());
    for (Worker worker : apart) {
      worker.requestEnd();
    }
    for (Worker worker : apart) {
      worker.awaitEnd();
    }
    if (store != null) {
      store.close();
    }
  }

  /** Halts the process at an instant of System.nanoTime(). */
  private static void endBy(long instant) {
    Runnable end = () -> {
      try {
        Thread.sleep(Math.max(instant - System.nanoTime(), 0) / 1_000_000);
      } catch (InterruptedException unexpected) {
        return;
      }
      System.err.println("Serval has closed the connection, and the store does not close: exiting");
      Runtime.getRuntime().halt(1);
    };
    daemon("end", end).start();
  }

  private boolean greet(Body body, StoreOpener opener) throws IOException {
    if (body.type != HELLO || body.u32() != MAGIC) {
      throw new IOException("the input is not a greeting of the driver protocol");
    }
    Frame frame = new Frame();
    int version = body.u16();
    try {
      if (version != VERSION) {
        throw new IllegalArgumentException("this driver speaks version " + VERSION + " of the protocol, not " + version);
      }
      Properties properties = new Properties();
      properties.putAll(body.pairs());
      reportsFlushes = "told".equals(properties.getProperty("driver.flushes"));
      grace = seconds(properties.getProperty("driver.grace"));
      store = opener.open(properties);
      frame.begin(WELCOME).u16(VERSION).text(store.name()).u32(store.capabilities() | APART);
      Map<String, String> facts = store.facts();
      frame.u32(facts.size());
      facts.forEach((name, value) -> frame.text(name).text(value));
    } catch (Exception | LinkageError error) {
      frame.begin(REFUSED).text(Worker.describe(error));
    }
    frame.end();
    out.send(frame);
    return store != null;
  }

  private static double seconds(String text) {
    try {
      double seconds = text == null ? GRACE : Double.parseDouble(text);
      return seconds >= 0 && seconds < 1e6 ? seconds : GRACE;
    } catch (NumberFormatException invalid) {
      return GRACE;
    }
  }

  private void request(Body body, byte[] frame) throws IOException {
    int id = body.u32();
    int client;
    try {
      client = body.u32();
      if (body.type == OPEN_APART) {
        apart.removeIf(Worker::hasEnded);
        Worker worker = new Worker(store, client, reportsFlushes, out, id, body.text(), body.text());
        apart.add(worker);
        worker.start();
        return;
      }
    } catch (BufferUnderflowException tooShort) {
      answer(id, Client.Status.BAD_REQUEST, "the request is too short");
      return;
    }
    Worker worker = workers.get(client);
    if (body.type == OPEN && (worker == null || worker.hasEnded())) {
      worker = new Worker(store, client, reportsFlushes, out);
      workers.put(client, worker);
      worker.start();
    }
    if (worker == null || worker.hasEnded()) {
      answer(id, Client.Status.BAD_REQUEST, "client " + client + " is not open");
      return;
    }
    worker.give(frame);
  }

  private boolean prepare(Body body) throws IOException {
    int id = body.u32();
    try {
      boolean load = body.octet() == 0;
      String table = body.text();
      store.prepare(table, body.texts(), load);
      answer(id, Client.Status.OK, "");
    } catch (Exception | LinkageError error) {
      answer(id, Client.Status.ERROR, Worker.describe(error));
    }
    return true;
  }

  private void answer(int id, Client.Status status, String message) throws IOException {
    Frame frame = new Frame();
    frame.begin(Worker.RESULT).u32(id).octet(status.ordinal()).u64(0).text(message).u32(0);
    frame.end();
    out.send(frame);
  }
}
