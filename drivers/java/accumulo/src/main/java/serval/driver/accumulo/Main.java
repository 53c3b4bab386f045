package serval.driver.accumulo;

import serval.driver.Driver;

/** Serval starts it as {@code java -cp ... serval.driver.accumulo.Main}. */
public final class Main {
  private Main() {}

  /** Takes no arguments; the settings come by the protocol. */
  public static void main(String[] arguments) throws Exception {
    Driver.main(AccumuloStore::new);
  }
}
