package serval.driver.accumulo;

import org.apache.accumulo.core.client.AccumuloException;
import org.apache.accumulo.core.client.AccumuloSecurityException;
import org.apache.accumulo.core.client.MutationsRejectedException;
import org.apache.accumulo.core.client.TableNotFoundException;
import org.apache.accumulo.core.client.TableOfflineException;
import org.apache.accumulo.core.client.TimedOutException;
import org.apache.accumulo.core.client.TableDeletedException;
import serval.driver.Client.Outcome;
import serval.driver.Client.Status;
import serval.driver.ErrorText;

/** Maps Accumulo's exceptions to statuses of the protocol. */
final class Failures {
  private Failures() {}

  static Outcome outcome(Throwable error) {
    return Outcome.of(status(error), ErrorText.withCause(error));
  }

  static Status status(Throwable error) {
    for (Throwable at = error; at != null; at = at.getCause() == at ? null : at.getCause()) {
      if (at instanceof MutationsRejectedException rejected) {
        if (!rejected.getSecurityErrorCodes().isEmpty()) {
          return Status.FORBIDDEN;
        }
        if (!rejected.getConstraintViolationSummaries().isEmpty()) {
          return Status.BAD_REQUEST;
        }
      }
      if (at instanceof AccumuloSecurityException) {
        return Status.FORBIDDEN;
      }
      // Records without fields; a table that was deleted.
      if (at instanceof IllegalArgumentException || at instanceof TableNotFoundException
          || at instanceof TableDeletedException) {
        return Status.BAD_REQUEST;
      }
      if (at instanceof TimedOutException || at instanceof TableOfflineException || at instanceof java.io.IOException) {
        return Status.SERVICE_UNAVAILABLE;
      }
    }
    return error instanceof AccumuloException ? Status.SERVICE_UNAVAILABLE : Status.ERROR;
  }
}
