import { Failure } from '../failure.ts';

/** A failure of the engine. Another replica may take the call while the agent has seen nothing of the reply. */
export class EngineFailed extends Failure {
  /** True when the engine itself answered this request with an error, which the request may have caused. */
  readonly isAnswer: boolean;
  constructor(message: string, { isAnswer }: { isAnswer: boolean }) {
    super(502, 'engine_error', message);
    this.isAnswer = isAnswer;
  }
}

export const badReply = (what: string) => new Failure(502, 'bad_engine_reply', `the engine's reply ${what}`);

/** The conversation does not fit the model. Agents know the code and shorten it. */
export const contextExceeded = (message: string) =>
  new Failure(400, 'context_length_exceeded', message, { retryable: false });
