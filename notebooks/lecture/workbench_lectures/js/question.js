// An exercise: a number or a choice, Check, what is said to it, and the solution on demand.

const MARKS = { right: "✓", wrong: "✗", unclear: "?" };

function field(model, id, check) {
  const choices = model.get("choices");
  if (choices.length) {
    const options = [["", "choose …"], ...choices].map(([value, words]) => element("option", { value }, words));
    return element("select", { id }, ...options);
  }
  const input = element("input", { id, type: "text", inputMode: "decimal", size: 10, autocomplete: "off", spellcheck: false });
  input.onkeydown = ({ key }) => void (key === "Enter" && check()); // an answer of false would swallow the key
  return input;
}

function render({ model, el }) {
  ours(el, "wb-question");
  const id = unique("answer"), title = model.get("title");
  let input;
  const check = () => model.send({ kind: "check", given: input.value });
  const button = (words, className, onclick) => element("button", { type: "button", className, onclick }, words);
  const text = element("div", { className: "wb-asked" }), place = element("span", { className: "wb-pair" });
  const judge = button("Check", "wb-check", check), show = button("", "wb-show", () => model.send({ kind: "why" }));
  const said = element("div", { id: `${id}-said`, className: "wb-said", role: "status" });
  const why = element("div", { className: "wb-solution" });
  judge.setAttribute("aria-label", `Check ${title}`);
  el.append(element("h3", {}, title), text, element("div", { className: "wb-bar" }, place, judge, show), said, why);

  const ask = () => (text.innerHTML = model.get("text"));
  const offer = () => {
    const before = input?.value ?? model.get("given");
    input = field(model, id, check);
    input.setAttribute("aria-describedby", said.id);
    input.setAttribute("aria-label", `answer to ${title}`);
    place.replaceChildren(element("label", { for: id }, "answer"), input, element("span", { className: "wb-unit" }, model.get("unit")));
    input.value = before;
  };
  const fill = () => input.value === model.get("given") || (input.value = model.get("given"));
  const say = () => {
    const kind = (el.dataset.verdict = model.get("verdict"));
    said.innerHTML = kind ? `<span aria-hidden="true">${MARKS[kind]}</span> ${model.get("words")}` : "";
  };
  const solve = () => {
    const open = Boolean(model.get("why"));
    why.innerHTML = model.get("why");
    show.textContent = open ? "Hide why" : "Show why";
    show.setAttribute("aria-label", `${show.textContent}, ${title}`);
    show.setAttribute("aria-expanded", open);
  };
  [ask, offer, fill, say, solve].forEach((draw) => draw());
  const traits = { text: ask, choices: offer, given: fill, verdict: say, words: say, why: solve };
  for (const [name, call] of Object.entries(traits)) model.on(`change:${name}`, call);
  return () => {
    for (const [name, call] of Object.entries(traits)) model.off(`change:${name}`, call);
  };
}

export default { render };
