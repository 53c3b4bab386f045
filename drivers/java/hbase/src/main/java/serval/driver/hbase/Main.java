package serval.driver.hbase;

import serval.driver.Driver;

/** Entry point of the driver, started by Serval for its store {@code hbase}. */
public final class Main {
  private Main() {}

  /** Takes no arguments; the protocol passes the settings. */
  public static void main(String[] arguments) throws Exception {
    if (arguments.length > 0) {
      throw new IllegalArgumentException("usage: serval.driver.hbase.Main, without arguments");
    }
    Driver.main(properties -> new HBaseStore(new Settings(properties)));
  }
}
