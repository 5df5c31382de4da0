// Two majors of the official SDK, and how an app comes back to a response.
import OpenAI7 from 'openai'
import OpenAI6 from 'openai-6'

export const majors = { 'openai 7': OpenAI7, 'openai 6': OpenAI6 }
export const newClient = (OpenAI, url, o = {}) => new OpenAI({ baseURL: url + '/v1', apiKey: 'none', maxRetries: 0, ...o })

/** All events of a response; as long as the stream breaks off, retrieves the rest. */
export async function follow(client, body) {
  const events = []
  const read = async (stream) => { for await (const e of stream) events.push(e) }
  const broken = async (fn) => {
    try {
      await fn()
    } catch (e) {
      if (!/terminated|socket|network|connection|aborted/i.test(String(e) + e.cause)) throw e
    }
    return !/response\.(completed|failed|incomplete)/.test(events.at(-1)?.type)
  }
  let again = await broken(async () => read(await client.responses.create({ stream: true, background: true, ...body })))
  for (let tries = 0; again; tries++) {
    if (tries > 5) throw new Error('it never ends')
    again = await broken(async () => read(await client.responses.retrieve(events[0].response.id, { stream: true, starting_after: events.at(-1).sequence_number })))
  }
  return events
}

/** The same for every run: ids and times that differ are named alike. */
export const alike = (value, id, run = id) =>
  JSON.parse(JSON.stringify(value).replaceAll(id, 'RESP').replaceAll(run, 'RUN').replace(/"created_at":\d+/g, '"created_at":0').replace(/"sequence_number":\d+/g, '"sequence_number":0'))

/** What the response says in the end. */
export const outcome = (response) => ({
  status: response.status,
  text: response.output.filter((i) => i.type === 'message').flatMap((i) => i.content.map((p) => p.text)).join('|'),
  items: response.output.map((i) => i.type),
})
