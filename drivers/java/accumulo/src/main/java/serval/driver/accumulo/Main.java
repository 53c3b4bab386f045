package serval.driver.accumulo;

import serval.driver.Driver;

/** Entry point of the driver, started by Serval as {@code java -cp ... serval.driver.accumulo.Main}. */
public final class Main {
  private Main() {}

  /** Takes no arguments; the protocol passes the settings. */
  public static void main(String[] arguments) throws Exception {
    Driver.main(AccumuloStore::new);
  }
}
