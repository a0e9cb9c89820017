/** Characters that a terminal acts on or that are not seen. JSON text has them only within its strings, where an escape means the same. */
const UNSEEN = /[\u007f-\u009f\u2028\u2029\p{Cf}]/gu;

const escaped = (text: string): string =>
  text.replace(UNSEEN, (character) =>
    Array.from(
      { length: character.length },
      (_, i) => `\\u${character.charCodeAt(i).toString(16).padStart(4, '0')}`,
    ).join(''),
  );

/**
 * Returns a command that sends a request again. The shell takes nothing of the body as its own: it stands between quoted marks, and JSON text
 * has no line that could be the second one. The key and the address stay variables, by the names that agents have.
 */
export const curlOf = ({ path, body }: { path: string; body: string }): string =>
  `curl "$OPENAI_BASE_URL${path}" \\
  -H "Authorization: Bearer $OPENAI_API_KEY" -H 'Content-Type: application/json' \\
  --data-binary @- <<'END_OF_BODY'
${escaped(body)}
END_OF_BODY
`;
