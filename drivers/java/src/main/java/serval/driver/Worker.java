package serval.driver;

import java.io.FileInputStream;
import java.io.FileNotFoundException;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.BufferUnderflowException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.locks.LockSupport;

/** Thread of a client: opens its handle, performs its requests in order, measures their times and answers them. */
final class Worker extends Thread {
  static final int RESULT = 3;
  private static final int OPEN = 3;
  private static final int CLOSE = 4;
  private static final int READ = 5;
  private static final int UPDATE = 6;
  private static final int INSERT = 7;
  private static final int SCAN = 8;
  private static final int DELETE = 9;
  /** Marker of the end of the input. */
  private static final byte[] END = {};
  /** Offset of a result's status and time: after length, type and id. */
  private static final int STATUS_AT = 9;

  private final Store store;
  private final int number;
  /** Whether Serval accepts reports of flushes. */
  private final boolean reportsFlushes;
  /** Destination of answers on the driver's shared connection. */
  private final AnswerSink out;
  /** Id of the request that opened a client with a connection of its own. */
  private final int openId;
  /** Paths of the pipes of a client with a connection of its own; null for clients of the shared connection. */
  private final String requestsPath;
  private final String answersPath;
  private final ConcurrentLinkedQueue<byte[]> requests = new ConcurrentLinkedQueue<>();
  private final Frame frame = new Frame();
  private volatile Client client;
  private volatile boolean ended;

  Worker(Store store, int number, boolean reportsFlushes, AnswerSink out) {
    this(store, number, reportsFlushes, out, 0, null, null);
  }

  /** Makes the worker of a client with pipes of its own. It answers the request to open on the shared connection. */
  Worker(
      Store store, int number, boolean reportsFlushes, AnswerSink out, int openId, String requestsPath, String answersPath) {
    super("client-" + number);
    this.store = store;
    this.number = number;
    this.reportsFlushes = reportsFlushes;
    this.out = out;
    this.openId = openId;
    this.requestsPath = requestsPath;
    this.answersPath = answersPath;
  }

  void give(byte[] request) {
    requests.add(request);
    LockSupport.unpark(this);
  }

  /** Waits for the next request. Parks without spinning, because other queues spin and take CPU time from the stores' threads. */
  private byte[] take() {
    while (true) {
      byte[] request = requests.poll();
      if (request != null) {
        return request;
      }
      LockSupport.park(this);
    }
  }

  /** Returns whether the client was closed and its thread accepts no more requests. */
  boolean hasEnded() {
    return ended;
  }

  /** Asks the thread to close the client, if the protocol has not closed it, and to end. */
  void requestEnd() {
    give(END);
  }

  /** Waits for the end of the thread, if it has an open client. Without one, it may wait for its pipes or store for ever. */
  void awaitEnd() throws InterruptedException {
    if (client != null) {
      join();
    }
  }

  @Override
  public void run() {
    try {
      if (requestsPath != null) {
        runApart();
        return;
      }
      while (!ended) {
        byte[] request = take();
        if (request == END) {
          break;
        }
        serve(new Body(request), out);
      }
    } catch (IOException gone) {
      // Serval is gone; the end of the input ends the driver.
    } finally {
      ended = true;
      closeQuietly();
    }
  }

  /** Reads requests from the client's own pipe, so that no other thread has to hand them over. */
  private void runApart() throws IOException {
    try (FileInputStream requests = new FileInputStream(requestsPath);
        FileOutputStream answers = new FileOutputStream(answersPath)) {
      Client.Outcome opened = Client.Outcome.OK;
      try {
        client = store.open(number);
      } catch (Exception | LinkageError error) {
        opened = Client.Outcome.of(Client.Status.ERROR, describe(error));
      }
      answerOpen(opened);
      if (client == null) {
        return;
      }
      FrameReader in = new FrameReader(requests);
      AnswerSink sink = answer -> answers.write(answer.array(), 0, answer.position());
      // Reads on after a CLOSE, because Serval closes the pipe.
      for (byte[] request = in.next(); request != null; request = in.next()) {
        serve(new Body(request), sink);
      }
    } catch (FileNotFoundException noPipe) {
      answerOpen(Client.Outcome.of(Client.Status.ERROR, describe(noPipe)));
    }
  }

  private void answerOpen(Client.Outcome outcome) throws IOException {
    frame.begin(RESULT).u32(openId).octet(outcome.status()).u64(0).text(outcome.message()).u32(0);
    frame.end();
    out.send(frame);
  }

  private void closeQuietly() {
    if (client == null) {
      return;
    }
    try {
      Client.Outcome outcome = client.close();
      if (outcome.status() > Client.Status.BATCHED_OK.ordinal()) {
        System.err.println("client " + number + " cannot be closed: " + outcome.message());
      }
    } catch (Exception | LinkageError error) {
      System.err.println("client " + number + " cannot be closed: " + describe(error));
    }
  }

  private void serve(Body body, AnswerSink sink) throws IOException {
    int id = body.u32();
    body.u32();
    Client.Outcome outcome;
    long took = 0;
    frame.begin(RESULT).u32(id).octet(0).u64(0);
    // Read and scan append their records directly to the frame, after an empty message.
    frame.text("").records();
    boolean closes = false;
    Client asked = client;
    try {
      switch (body.type) {
        case OPEN -> {
          if (client == null) {
            client = store.open(number);
          }
          outcome = Client.Outcome.OK;
        }
        case CLOSE -> {
          closes = true;
          long start = System.nanoTime();
          outcome = client == null ? Client.Outcome.OK : client.close();
          took = System.nanoTime() - start;
          client = null;
        }
        default -> {
          Call call = call(body);
          long start = System.nanoTime();
          outcome = call.perform();
          took = Math.max(System.nanoTime() - start, 1);
        }
      }
    } catch (BufferUnderflowException tooShort) {
      outcome = Client.Outcome.of(Client.Status.BAD_REQUEST, "the request is too short");
    } catch (BadRequest bad) {
      outcome = Client.Outcome.of(Client.Status.BAD_REQUEST, bad.getMessage());
    } catch (Exception | LinkageError error) {
      outcome = Client.Outcome.of(Client.Status.ERROR, describe(error));
      // A client that could not be opened needs no thread.
      closes |= body.type == OPEN;
    }
    if (outcome.status() > Client.Status.BATCHED_OK.ordinal()) {
      frame.begin(RESULT).u32(id).octet(outcome.status()).u64(took).text(outcome.message()).u32(0);
    } else {
      frame.patch(STATUS_AT, outcome.status(), 1);
      frame.patch(STATUS_AT + 1, took, 8);
    }
    if (asked != null && reportsFlushes) {
      putFlushes(asked);
    }
    if (!frame.end()) {
      String message = "the records are more than the driver protocol takes in one answer";
      frame.begin(RESULT).u32(id).octet(Client.Status.ERROR.ordinal()).u64(took).text(message).u32(0);
      frame.end();
    }
    // Set before the answer leaves, so that the next OPEN sees it.
    ended |= closes;
    sink.send(frame);
  }

  /** Appends unreported flushes after the records, if there are any. */
  private void putFlushes(Client asked) {
    Client.Flush flush = asked.flushed();
    if (flush == null) {
      return;
    }
    List<Client.Flush> flushes = new ArrayList<>();
    for (; flush != null; flush = asked.flushed()) {
      flushes.add(flush);
    }
    frame.u32(flushes.size());
    long now = System.nanoTime();
    for (Client.Flush each : flushes) {
      frame.octet(each.outcome().status()).u64(each.nanoseconds()).u64(Math.max(now - each.endedAt(), 0));
      frame.u64(each.writes()).u64(each.lost()).text(each.outcome().message());
    }
  }

  private interface Call {
    Client.Outcome perform() throws Exception;
  }

  private static final class BadRequest extends Exception {
    private static final long serialVersionUID = 1;

    BadRequest(String message) {
      super(message);
    }
  }

  /** Decodes a request, outside of the measured time. */
  private Call call(Body body) throws BadRequest {
    Client client = this.client;
    if (client == null) {
      throw new BadRequest("client " + number + " is not open");
    }
    switch (body.type) {
      case READ, UPDATE, INSERT, SCAN, DELETE -> {}
      default -> throw new BadRequest("a request of type " + (body.type & 255));
    }
    String table = body.text();
    String key = body.text();
    switch (body.type) {
      case READ -> {
        List<String> fields = body.fields();
        return () -> client.read(table, key, fields, frame);
      }
      case SCAN -> {
        // An unsigned number above Long.MAX_VALUE is read as that.
        long signed = body.u64();
        long count = signed < 0 ? Long.MAX_VALUE : signed;
        List<String> fields = body.fields();
        return () -> client.scan(table, key, count, fields, frame);
      }
      case DELETE -> {
        return () -> client.delete(table, key);
      }
      default -> {
        Map<String, byte[]> values = body.record();
        return body.type == UPDATE
            ? () -> client.update(table, key, values)
            : () -> client.insert(table, key, values);
      }
    }
  }

  /** Returns the messages of an error and its causes, or their class names. */
  static String describe(Throwable error) {
    StringBuilder text = new StringBuilder();
    for (Throwable at = error; at != null; at = at.getCause()) {
      String message = at.getMessage() == null ? at.getClass().getName() : at.getMessage();
      if (at instanceof LinkageError || at instanceof ClassNotFoundException) {
        message = at.getClass().getSimpleName() + ": " + message;
      }
      if (text.indexOf(message) < 0) {
        text.append(text.isEmpty() ? "" : ": ").append(message);
      }
      if (at.getCause() == at) {
        break;
      }
    }
    return text.toString();
  }
}
