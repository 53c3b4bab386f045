package serval.driver;

import java.io.IOException;

/** Where a client's answers go. */
interface Way {
  void send(Frame frame) throws IOException;
}
