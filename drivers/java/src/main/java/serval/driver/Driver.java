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

/** The driver protocol (docs/driver-protocol.md) on standard input and output, for any {@link Store}. */
public final class Driver {
  private static final int MAGIC = 0x4c565253;
  private static final int VERSION = 1;
  private static final int HELLO = 1;
  private static final int PREPARE = 2;
  private static final int OPEN = 3;
  private static final int OPEN_APART = 11;
  /** The capability of clients with connections of their own. */
  private static final int APART = 1 << 6;
  private static final int WELCOME = 1;
  private static final int REFUSED = 2;
  /** Seconds in which a driver must have ended after its input has, where Serval does not say. */
  private static final double GRACE = 10;
  /** How much longer it takes to end itself by force: Serval, if it lives, comes first and says so. */
  private static final double PATIENCE = 1;

  /** Makes a store from the properties of the greeting. Throws with words for the user. */
  public interface Opener {
    Store open(Properties properties) throws Exception;
  }

  private final In in;
  private final Out out;
  private final Map<Integer, Worker> workers = new HashMap<>();
  /** The clients with connections of their own, whose numbers may come again. */
  private final List<Worker> apart = new ArrayList<>();
  /** Opens and prepares the store, so that the end of the input is seen meanwhile: a store may be waited for without end. */
  private final ExecutorService settingUp = Executors.newSingleThreadExecutor(task -> daemon("set-up", task));
  private volatile Store store;
  private volatile boolean tellsFlushes;
  private volatile double grace = GRACE;

  private Driver(In in, Out out) {
    this.in = in;
    this.out = out;
  }

  /** Serves until the input ends, and ends the process. */
  public static void main(Opener opener) throws Exception {
    try {
      serve(opener);
    } catch (Exception gone) {
      System.err.println(Worker.words(gone));
      System.exit(1);
    }
    // Threads that a client library has left must not keep the driver.
    System.exit(0);
  }

  /** Serves until the input ends. What anybody prints goes to standard error, for standard output is the protocol's. */
  private static void serve(Opener opener) throws Exception {
    FileInputStream input = new FileInputStream(FileDescriptor.in);
    FileOutputStream output = new FileOutputStream(FileDescriptor.out);
    System.setOut(System.err);
    new Driver(new In(input), new Out(output)).run(opener);
  }

  static Thread daemon(String name, Runnable task) {
    Thread thread = new Thread(task, name);
    thread.setDaemon(true);
    return thread;
  }

  private void run(Opener opener) throws Exception {
    byte[] hello = in.next();
    if (hello == null) {
      return;
    }
    Future<?> ready = settingUp.submit(() -> orExit(() -> greet(new Body(hello), opener)));
    try {
      for (byte[] frame = in.next(); frame != null; frame = in.next()) {
        ready.get();
        Body body = new Body(frame);
        if (body.type == PREPARE) {
          ready = settingUp.submit(() -> orExit(() -> prepare(body)));
        } else {
          request(body, frame);
        }
      }
    } finally {
      // A store that does not let go, or a client in the middle of an operation, must not keep the driver.
      endBy(System.nanoTime() + (long) ((grace + PATIENCE) * 1e9));
      if (isDone(ready)) {
        end();
      }
    }
  }

  /** Whether the store is set up. Its answer leaves before that is noted; what waits for longer waits for the store. */
  private static boolean isDone(Future<?> ready) throws Exception {
    try {
      ready.get(1, TimeUnit.SECONDS);
      return true;
    } catch (TimeoutException waits) {
      return false;
    }
  }

  /** A step of setting up: false where there is nothing more to do. */
  private interface Step {
    boolean go() throws Exception;
  }

  /** Takes a step, and ends the process where it leads no further: nobody else would, as long as the input has no end. */
  private static void orExit(Step step) {
    try {
      if (!step.go()) {
        System.exit(0);
      }
    } catch (Throwable error) {
      System.err.println(Worker.words(error));
      System.exit(1);
    }
  }

  /** Closes what is open. */
  private void end() throws Exception {
    apart.addAll(workers.values());
    for (Worker worker : apart) {
      worker.tellEnd();
    }
    for (Worker worker : apart) {
      worker.awaitEnd();
    }
    if (store != null) {
      store.close();
    }
  }

  /** Ends the process at an instant, if it is there still. */
  private static void endBy(long instant) {
    Runnable end = () -> {
      try {
        Thread.sleep(Math.max(instant - System.nanoTime(), 0) / 1_000_000);
      } catch (InterruptedException nobody) {
        return;
      }
      System.err.println("Serval has hung up, and the store does not let go: ended");
      Runtime.getRuntime().halt(1);
    };
    daemon("end", end).start();
  }

  private boolean greet(Body body, Opener opener) throws IOException {
    if (body.type != HELLO || body.u32() != MAGIC) {
      throw new IOException("what came is not of the driver protocol");
    }
    Frame frame = new Frame();
    int version = body.u16();
    try {
      if (version != VERSION) {
        throw new IllegalArgumentException("this driver speaks version " + VERSION + " of the protocol, not " + version);
      }
      Properties properties = new Properties();
      properties.putAll(body.pairs());
      tellsFlushes = "told".equals(properties.getProperty("driver.flushes"));
      grace = seconds(properties.getProperty("driver.grace"));
      store = opener.open(properties);
      frame.begin(WELCOME).u16(VERSION).text(store.name()).u32(store.capabilities() | APART);
      Map<String, String> facts = store.facts();
      frame.u32(facts.size());
      facts.forEach((name, value) -> frame.text(name).text(value));
    } catch (Exception | LinkageError error) {
      frame.begin(REFUSED).text(Worker.words(error));
    }
    frame.end();
    out.send(frame);
    return store != null;
  }

  private static double seconds(String text) {
    try {
      double seconds = text == null ? GRACE : Double.parseDouble(text);
      return seconds >= 0 && seconds < 1e6 ? seconds : GRACE;
    } catch (NumberFormatException other) {
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
        Worker worker = new Worker(store, client, tellsFlushes, out, id, body.text(), body.text());
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
      worker = new Worker(store, client, tellsFlushes, out);
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
      answer(id, Client.Status.ERROR, Worker.words(error));
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
