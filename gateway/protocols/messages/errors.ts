import type { Failure } from '../../failure.ts';
import type { JsonObject } from '../../json.ts';

const TYPES: Record<number, string> = {
  401: 'authentication_error',
  403: 'permission_error',
  404: 'not_found_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
  503: 'overloaded_error',
  504: 'timeout_error',
};

/** Returns Anthropic's error envelope. */
export function messageErrorBody({ status, code, message }: Failure): JsonObject & { error: JsonObject } {
  const type = TYPES[status] ?? (status < 500 ? 'invalid_request_error' : 'api_error');
  // From these words its clients know that they must shorten the conversation.
  return {
    type: 'error',
    error: { type, message: code === 'context_length_exceeded' ? `prompt is too long: ${message}` : message },
  };
}
