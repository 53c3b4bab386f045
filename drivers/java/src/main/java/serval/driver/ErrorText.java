package serval.driver;

/** Short texts of exceptions, by which a result counts failures. */
public final class ErrorText {
  /** Longest text, because messages may contain stack traces. */
  private static final int LENGTH_MAX = 300;

  private ErrorText() {}

  /** Returns the name of an exception's class and the first line of its message. */
  public static String of(Throwable error) {
    String message = error.getMessage() == null ? "" : error.getMessage().lines().findFirst().orElse("");
    String name = error.getClass().getSimpleName();
    String text = message.isEmpty() ? name : name + ": " + message;
    return text.length() > LENGTH_MAX ? text.substring(0, LENGTH_MAX) + "..." : text;
  }

  /** Returns the text of an exception, followed by that of its deepest cause. */
  public static String withCause(Throwable error) {
    Throwable cause = error;
    while (cause.getCause() != null && cause.getCause() != cause) {
      cause = cause.getCause();
    }
    return cause == error ? of(error) : of(error) + ": " + of(cause);
  }
}
