// The chats of this browser. They are kept in its local storage, and are sent nowhere.

const slot = 'lorafuse.chats', open = 'lorafuse.chat';
const most = 50; // chats that are kept

// saved returns the chats, the newest first: {id, system, turns: [{text, answers: [{model, text, about}]}]}.
export function saved() {
  try {
    const chats = JSON.parse(localStorage.getItem(slot) ?? '[]');
    return Array.isArray(chats) ? chats.filter((chat) => chat && typeof chat.id === 'string' && Array.isArray(chat.turns)) : [];
  } catch {
    return [];
  }
}

// write stores chats; if the browser has no room, the oldest are dropped.
function write(chats) {
  for (chats = chats.slice(0, most); ; chats = chats.slice(0, -1)) {
    try {
      return localStorage.setItem(slot, JSON.stringify(chats));
    } catch {
      if (chats.length === 0) return; // the browser stores nothing
    }
  }
}

// save stores a chat as the newest, and as the one that is open.
export function save(chat) {
  write([chat, ...saved().filter(({ id }) => id !== chat.id)]);
  select(chat.id);
}

export const remove = (id) => write(saved().filter((chat) => chat.id !== id));

// select names the chat that is open after a reload; null is a new one.
export function select(id) {
  try {
    if (id) localStorage.setItem(open, id);
    else localStorage.removeItem(open);
  } catch {
    // the browser stores nothing
  }
}

// selected returns the chat that was open, or undefined.
export function selected() {
  try {
    const id = localStorage.getItem(open);
    return saved().find((chat) => chat.id === id);
  } catch {
    return undefined;
  }
}

// title returns a short name of a chat.
export const title = (chat) => (chat.turns[0]?.text ?? '').trim().split('\n')[0].slice(0, 40) || 'Chat';
