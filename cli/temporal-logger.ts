import { DefaultLogger } from '@temporalio/worker';
import { failureFields, type Log } from '../core/log.ts';

/** Returns a logger that writes Temporal's warnings and errors into the process's log, with the run whose workflow or activity they are about. */
export function temporalLogger(log: Log): DefaultLogger {
  return new DefaultLogger('WARN', ({ message, level, meta = {} }) => {
    const { error, workflowId } = meta;
    const failure = error instanceof Error && error.message !== '' ? `: ${error.message}` : '';
    log(`Temporal: ${message}${failure}`, {
      level: level === 'WARN' ? 'warning' : 'error',
      ...(typeof workflowId === 'string' ? { run_id: workflowId.split('/')[0] } : {}),
      ...failureFields(error),
    });
  });
}
