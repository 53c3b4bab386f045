package serval.driver.hbase;

import serval.driver.Driver;

/** Serval starts it for its store {@code hbase}, with all settings as properties of the protocol. */
public final class Main {
  private Main() {}

  /** No arguments. */
  public static void main(String[] arguments) throws Exception {
    if (arguments.length > 0) {
      throw new IllegalArgumentException("usage: serval.driver.hbase.Main, without arguments");
    }
    Driver.main(properties -> new HBaseStore(new Settings(properties)));
  }
}
