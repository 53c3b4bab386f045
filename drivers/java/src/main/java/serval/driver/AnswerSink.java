package serval.driver;

import java.io.IOException;

/** Destination of a client's answers. */
interface AnswerSink {
  void send(Frame frame) throws IOException;
}
