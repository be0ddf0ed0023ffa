// Server-sent events, as the server writes them: https requests with bodies have no
// EventSource, so they are read by hand.

// EventReader reads events from pieces of text, cut at any position.
export class EventReader {
  #rest = '';
  #data = [];

  // push adds a piece and returns the data of the events that it completes.
  push(piece) {
    this.#rest += piece;
    const events = [];
    for (;;) {
      const end = /\r\n|\n|\r/.exec(this.#rest);
      if (!end || (end[0] === '\r' && end.index === this.#rest.length - 1)) break; // \n may follow
      this.#line(this.#rest.slice(0, end.index), events);
      this.#rest = this.#rest.slice(end.index + end[0].length);
    }
    return events;
  }

  #line(line, events) {
    if (line === '') {
      if (this.#data.length > 0) events.push(this.#data.join('\n'));
      this.#data = [];
      return;
    }
    const colon = line.indexOf(':');
    const name = colon < 0 ? line : line.slice(0, colon);
    if (name !== 'data') return; // a comment, which keeps the connection, or another field
    const value = colon < 0 ? '' : line.slice(colon + 1);
    this.#data.push(value.startsWith(' ') ? value.slice(1) : value);
  }
}

// events yields the data of each event of a response.
export async function* events(response) {
  const reader = new EventReader();
  const body = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { value, done } = await body.read();
      if (done) return;
      yield* reader.push(value);
    }
  } finally {
    body.cancel().catch(() => {}); // it has ended, or was cancelled
  }
}
