import proto from '@temporalio/proto';
import { readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';

const { History } = proto.temporal.api.history.v1;

export type RecordedHistory = { workflowId: string; type: string; history: proto.temporal.api.history.v1.History };
/** The recording of one scenario by one release. The file has one line for each execution. */
export type HistoryFile = { name: string; executions: RecordedHistory[] };

/** Reads the recordings of every release of which a run may still be under way. */
export function readHistories(): HistoryFile[] {
  return readdirSync(import.meta.dirname, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.jsonl.gz'))
    .toSorted()
    .map((name) => {
      const lines = gunzipSync(readFileSync(path.join(import.meta.dirname, name)))
        .toString()
        .trimEnd()
        .split('\n');
      return { name: `tests/histories/${name}`, executions: lines.map(recorded) };
    });
}

function recorded(line: string): RecordedHistory {
  const history = History.fromObject(JSON.parse(line));
  const { workflowId, workflowType } = history.events[0]?.workflowExecutionStartedEventAttributes ?? {};
  if (!workflowId || !workflowType?.name) throw new Error('a recorded history does not begin with its start event');
  return { workflowId, type: workflowType.name, history };
}
