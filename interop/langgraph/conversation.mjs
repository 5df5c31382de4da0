// What an app of LangGraph's makes of a stream: the last values, and the messages
// that the chunks add up to, by the classes of LangChain itself.
import { AIMessageChunk, ToolMessageChunk } from '@langchain/core/messages'

export class Conversation {
  values = null
  #messages = new Map()

  add(event, data) {
    if (event === 'values') this.values = data
    if (event === 'messages') this.#chunk(...data)
  }

  #chunk({ type, ...fields }) {
    if (type === 'remove') return void this.#messages.delete(fields.id)
    const chunk = type === 'tool' ? new ToolMessageChunk(fields) : new AIMessageChunk(fields)
    const had = this.#messages.get(fields.id)
    this.#messages.set(fields.id, had ? had.concat(chunk) : chunk)
  }

  state() {
    const chunks = [...this.#messages.values()].map((m) => ({
      id: m.id, type: m.getType(), content: m.content, calls: m.tool_calls?.map((c) => [c.id, c.name, c.args]), status: m.status,
      additional_kwargs: m.additional_kwargs,
    }))
    return { values: this.values, chunks }
  }
}
