/** Returns the text with which the toy engine calls tools. */
export const calling = (...calls: { name: string; arguments: unknown }[]): string =>
  calls.map((call) => `<tool_call>${JSON.stringify(call)}</tool_call>`).join('');
