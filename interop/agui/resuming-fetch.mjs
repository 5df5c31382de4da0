/**
 * A fetch for HttpAgent's option of that name. If the request or its stream breaks
 * off it asks again, with the id of the last message that it has handed on: the same
 * run goes on where it was, on whatever edge answers. HttpAgent sees one stream.
 * wait is the pause after a request that failed, in ms.
 */
export const resumingFetch = (tries = 5, wait = 0) => async (url, init) => {
  let last = ''
  let left = tries

  const ask = async () => {
    for (;;) {
      const headers = new Headers(init.headers)
      if (last) headers.set('last-event-id', last)
      try {
        return await fetch(url, { ...init, headers })
      } catch (e) {
        if (init.signal?.aborted || !left--) throw e
        await new Promise((ok) => setTimeout(ok, wait))
      }
    }
  }

  const first = await ask()
  if (!first.ok || !first.body) return first

  // Only whole messages are handed on: one that was cut comes again.
  async function* messages() {
    for (let response = first; ; ) {
      try {
        let rest = ''
        for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
          const whole = (rest + chunk).split('\n\n')
          rest = whole.pop()
          for (const message of whole) {
            last = /^id: ?(.*)$/m.exec(message)?.[1] ?? last
            yield message + '\n\n'
          }
        }
        return // a body that ends is the end of the run
      } catch (e) {
        if (init.signal?.aborted || !left--) throw e
        response = await ask()
        if (!response.ok) throw new Error(`HTTP ${response.status}: ${await response.text()}`)
      }
    }
  }

  const all = messages()
  const utf8 = new TextEncoder()
  const body = new ReadableStream({
    async pull(to) {
      const { value, done } = await all.next()
      if (done) to.close()
      else to.enqueue(utf8.encode(value))
    },
    cancel() {
      left = 0 // nobody reads any more
      all.return().catch(() => {})
    },
  })
  return new Response(body, { status: first.status, headers: first.headers })
}
