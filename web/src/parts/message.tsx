import { useState, type ReactNode } from 'react';
import { visible } from '../format.ts';
import { indentJson } from '../indent-json.ts';

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** The most characters that are shown before someone asks for the rest. */
const MOST_CHARACTERS = 6_000;

/** Text that an agent or a model wrote: shown as it is, never as HTML. */
export function Text({ text, dim = false }: { text: string; dim?: boolean }) {
  const [isWhole, setWhole] = useState(false);
  const shown = isWhole || text.length <= MOST_CHARACTERS ? text : text.slice(0, MOST_CHARACTERS);
  return (
    <>
      <pre className={dim ? 'text dim' : 'text'} dir="auto">
        {visible(shown)}
      </pre>
      {shown.length < text.length && (
        <button type="button" className="quiet" onClick={() => setWhole(true)}>
          Show {(text.length - shown.length).toLocaleString('en')} more characters
        </button>
      )}
    </>
  );
}

/** One message in OpenAI's form: its text and images, what it reasoned, and the tools that it calls. */
export function Message({ message, facts, number }: { message: unknown; facts?: ReactNode; number?: number }) {
  if (message === null)
    return <p className="hint">A message that was sent before; it is too far back to be read here.</p>;
  if (!isObject(message)) return <Text text={asText(message)} />;
  const role = typeof message.role === 'string' ? message.role : 'message';
  const calls = Array.isArray(message.tool_calls) ? message.tool_calls : [];
  const reasoned = message.reasoning_content ?? message.reasoning;
  return (
    <article className={`message card role-${ROLES.has(role) ? role : 'other'}`}>
      <h2>
        {visible(role)}
        {typeof message.name === 'string' && <span className="hint"> {visible(message.name)}</span>}
        {number !== undefined && <span className="hint"> call {number}</span>}
        {facts !== undefined && <span className="facts"> · {facts}</span>}
      </h2>
      {typeof reasoned === 'string' && reasoned !== '' && <Text text={reasoned} dim />}
      <Content content={message.content} />
      {calls.map((call, i) => (
        <ToolCall key={i} call={call} />
      ))}
    </article>
  );
}

const ROLES = new Set(['system', 'developer', 'user', 'assistant', 'tool']);

function Content({ content }: { content: unknown }) {
  if (content === null || content === undefined || content === '') return null;
  if (!Array.isArray(content)) return <Text text={asText(content)} />;
  return content.map((part, i) => <Part key={i} part={part} />);
}

/** Only images that are within the record are shown: the browser loads nothing from elsewhere. */
const OWN_IMAGE = /^data:image\/(png|jpeg|gif|webp);base64,/;

function Part({ part }: { part: unknown }) {
  if (!isObject(part)) return <Text text={asText(part)} />;
  const image = isObject(part.image_url) ? part.image_url.url : undefined;
  if (typeof image === 'string' && OWN_IMAGE.test(image)) return <img src={image} alt="As the agent sent it" />;
  return <Text text={typeof part.text === 'string' ? part.text : asText(part)} />;
}

function ToolCall({ call }: { call: unknown }) {
  const called = isObject(call) && isObject(call.function) ? call.function : null;
  if (!called) return <Text text={asText(call)} />;
  return (
    <div className="tool">
      <strong>calls {visible(asText(called.name))}</strong>
      <Text text={typeof called.arguments === 'string' ? indentJson(called.arguments) : asText(called.arguments)} />
    </div>
  );
}

/** Returns the name of a tool of a request; null is one that was sent before, too far back to be read here. */
export const toolName = (tool: unknown): string =>
  isObject(tool) && isObject(tool.function) ? asText(tool.function.name) : asText(tool);

const asText = (value: unknown): string => (typeof value === 'string' ? value : (JSON.stringify(value, null, 2) ?? ''));
