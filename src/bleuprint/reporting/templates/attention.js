// The attention maps: one table of shares for the chosen head, and small pictures of all heads to choose from.
(() => {
  "use strict";
  const data = document.getElementById("attention-data");
  if (!data) return;
  const maps = JSON.parse(data.textContent);
  const form = document.getElementById("attention-controls");
  const table = document.getElementById("attention-map");
  const heads = form.querySelector(".heads");
  const PICTURE = 40; // pixels of a small picture's side

  const colour = name => {
    const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim().slice(1);
    return [0, 2, 4].map(start => parseInt(hex.slice(start, start + 2), 16));
  };
  const mixed = (share, paper, heat) => paper.map((value, i) => Math.round(value + share * (heat[i] - value)));
  const linear = value => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  // Black or white, whichever can be read: the better of them always has a contrast of 4.5.
  const inkOn = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b) > 0.179 ? "#000" : "#fff";

  // Pieces of a word that do not begin it get a dot; the sign of a word's beginning is left out.
  const shown = tokens => {
    const pieces = tokens.some(token => token.startsWith("\u2581"));
    return tokens.map(token => token.startsWith("\u2581") ? token.slice(1) || "\u2581"
      : pieces && !token.startsWith("<") ? `·${token}` : token);
  };

  function state() {
    const map = maps.find(candidate => candidate.run === form.elements.run.value);
    const sentence = map.sentences[form.elements.sentence.selectedIndex];
    const kind = form.elements.kind.value;
    const rows = kind === "encoder" ? sentence.read : sentence.written;
    const columns = kind === "decoder" ? sentence.before : sentence.read;
    const bytes = Uint8Array.from(atob(sentence[kind]), character => character.charCodeAt(0));
    const size = rows.length * columns.length;
    const share = (layer, head) => {
      const start = (layer * map.heads + head) * size;
      return bytes.subarray(start, start + size);
    };
    return { map, sentence, kind, rows: shown(rows), columns: shown(columns), share };
  }

  function chosenHead(map) {
    const value = form.querySelector("input[name=head]:checked")?.value ?? `${map.layers - 1} 0`;
    const [layer, head] = value.split(" ").map(Number);
    return layer < map.layers && head < map.heads ? [layer, head] : [map.layers - 1, 0];
  }

  function fillSentences() {
    const { sentences } = maps.find(map => map.run === form.elements.run.value);
    form.elements.sentence.replaceChildren(...sentences.map(sentence => {
      const option = document.createElement("option");
      option.textContent = `line ${sentence.line}: ${shown(sentence.read).filter(token => !token.startsWith("<")).slice(0, 5).join(" ")} …`;
      return option;
    }));
  }

  function drawPicture(canvas, bytes, width, paper, heat) {
    const height = bytes.length / width;
    canvas.width = width;
    canvas.height = height;
    const context = canvas.getContext("2d");
    const image = context.createImageData(width, height);
    bytes.forEach((byte, i) => image.data.set([...mixed(byte / 255, paper, heat), 255], 4 * i));
    context.putImageData(image, 0, 0);
  }

  function drawHeads(now, paper, heat) {
    const [layer, head] = chosenHead(now.map);
    heads.replaceChildren(...Array.from({ length: now.map.layers }, (_, l) => {
      const row = document.createElement("div");
      row.className = "layer";
      row.append(Object.assign(document.createElement("span"), { textContent: l + 1, className: "layer-number" }));
      for (let h = 0; h < now.map.heads; h++) {
        const label = document.createElement("label");
        const input = Object.assign(document.createElement("input"), {
          type: "radio", name: "head", value: `${l} ${h}`, checked: l === layer && h === head,
        });
        input.setAttribute("aria-label", `layer ${l + 1}, head ${h + 1}`);
        const canvas = document.createElement("canvas");
        canvas.setAttribute("aria-hidden", "true");
        canvas.style.width = canvas.style.height = `${PICTURE}px`;
        drawPicture(canvas, now.share(l, h), now.columns.length, paper, heat);
        label.append(input, canvas);
        row.append(label);
      }
      return row;
    }));
  }

  const cell = (tag, text, attributes) => {
    const element = document.createElement(tag);
    const inner = document.createElement("bdi");
    inner.textContent = text;
    element.append(inner);
    for (const [name, value] of Object.entries(attributes ?? {})) element.setAttribute(name, value);
    return element;
  };

  function drawMap(now, paper, heat) {
    const [layer, head] = chosenHead(now.map);
    const bytes = now.share(layer, head);
    const caption = document.createElement("caption");
    caption.textContent = `${now.map.run}, ${form.elements.kind.selectedOptions[0].text}: layer ${layer + 1}, head ${head + 1}`;
    const top = document.createElement("tr");
    top.append(document.createElement("td"), ...now.columns.map(token => cell("th", token, { scope: "col" })));
    const rows = now.rows.map((token, r) => {
      const row = document.createElement("tr");
      row.append(cell("th", token, { scope: "row" }));
      now.columns.forEach((column, c) => {
        const byte = bytes[r * now.columns.length + c], percent = Math.round(byte / 2.55);
        const shade = mixed(byte / 255, paper, heat);
        const data = cell("td", percent >= 10 ? percent : "", { title: `${token} → ${column}: ${percent} %` });
        data.style.backgroundColor = `rgb(${shade})`;
        data.style.color = inkOn(shade);
        row.append(data);
      });
      return row;
    });
    const head_ = document.createElement("thead"), body = document.createElement("tbody");
    head_.append(top);
    body.append(...rows);
    table.replaceChildren(caption, head_, body);
    document.getElementById("attention-cut").hidden = !now.sentence.cut;
  }

  function draw() {
    const now = state(), paper = colour("--paper"), heat = colour("--heat");
    drawHeads(now, paper, heat);
    drawMap(now, paper, heat);
  }

  form.addEventListener("submit", event => event.preventDefault());
  form.addEventListener("change", event => {
    if (event.target.name === "run") fillSentences();
    if (event.target.name === "head") drawMap(state(), colour("--paper"), colour("--heat"));
    else draw();
  });
  document.addEventListener("schemechange", draw);
  fillSentences();
  draw();
})();
