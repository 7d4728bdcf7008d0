// What the live pages share.

/** Run a page's program, and put the sentence of what goes wrong where the results would be. */
export async function live(place, program, { modules = true } = {}) {
  try {
    const why = modules && (await without());
    if (why) throw new Error(why);
    await program(place);
    place.dataset.state = "done";
  } catch (error) {
    const line = document.createElement("p");
    line.className = "live-problem";
    line.textContent = error.message;
    place.replaceChildren(line);
    place.dataset.state = "problem";
  }
}

/** Why the pages were built without modules; "" if there are some. */
async function without() {
  const { built } = await json("built.json");
  return built && `These pages were built on a machine without WebGPU: ${built}`;
}

export async function json(url) {
  const answer = await fetch(new URL(url, document.baseURI));
  if (!answer.ok) throw new Error(`${url} cannot be fetched: ${answer.status} ${answer.statusText}`);
  return answer.json();
}

/** An element with a text. */
export function element(name, text = "", className = "") {
  const made = document.createElement(name);
  made.textContent = text;
  if (className) made.className = className; // the theme draws tables that have no class
  return made;
}

/** Milliseconds as people read them. */
export const spoken = (ms) => (ms < 10 ? `${ms.toFixed(2)} ms` : ms < 1000 ? `${ms.toFixed(0)} ms` : `${(ms / 1000).toFixed(2)} s`);
