package serval.driver;

/** Entry point of the driver, started by Serval as {@code java -cp ... serval.driver.Main KIND}. */
public final class Main {
  private Main() {}

  /** Takes the kind of store: {@code ycsb}. The protocol passes the settings. */
  public static void main(String[] arguments) throws Exception {
    String kind = arguments.length == 1 ? arguments[0] : "";
    Driver.StoreOpener opener = switch (kind) {
      case "ycsb" -> properties -> {
        String name = properties.getProperty("java.class", "");
        if (name.isEmpty()) {
          throw new IllegalArgumentException("java.class names no binding");
        }
        return new YcsbStore(name, properties);
      };
      default -> throw new IllegalArgumentException("usage: serval.driver.Main ycsb");
    };
    Driver.main(opener);
  }
}
