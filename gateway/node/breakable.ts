/** A stream that fails breaks its connection, and does nothing else: the server's own way writes the error's text into it. */
export function breakable(response: Response, breakConnection: () => void): Response {
  const reader = isStream(response) ? response.body?.getReader() : undefined;
  if (!reader) return response;
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const next = await reader.read();
        if (next.done) controller.close();
        else controller.enqueue(next.value);
      } catch {
        breakConnection();
        controller.close();
      }
    },
    cancel: (reason) => reader.cancel(reason),
  });
  return new Response(body, response);
}

const isStream = (response: Response): boolean => response.headers.get('content-type')?.startsWith('text/event-stream') ?? false;
