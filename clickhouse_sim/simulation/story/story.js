// Draws `story`: lanes from top to bottom, virtual time from left to right.
const NAMES = 110, ROW = 9, GAP = 14, TOP = 26;
const svg = document.getElementById("lanes");
const says = document.getElementById("says");

function shape(kind, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  svg.append(element);
  return element;
}

function telling(element, text) {
  element.addEventListener("mouseenter", () => { says.textContent = text; });
}

// Bars that overlap in time go to rows of their own.
function rowsOf(bars) {
  const ends = [];
  return bars.map(bar => {
    const end = bar.to ?? story.end;
    let row = ends.findIndex(free => free <= bar.from);
    if (row < 0) row = ends.length;
    ends[row] = end;
    return row;
  });
}

function draw(secondsShown) {
  svg.replaceChildren();
  const view = document.getElementById("scroll").clientWidth - NAMES - 20;
  const scale = view / secondsShown;
  const x = seconds => NAMES + seconds * scale;
  const places = {};
  let y = TOP;
  for (const lane of story.lanes) {
    const rows = rowsOf(lane.bars);
    const height = ROW * (1 + Math.max(0, ...rows)) + GAP;
    shape("line", {x1: 0, x2: x(story.end), y1: y - 4, y2: y - 4, class: "lane"});
    shape("text", {x: 6, y: y + ROW}, lane.name);
    lane.bars.forEach((bar, index) => {
      const top = y + rows[index] * ROW, end = bar.to ?? story.end;
      const box = {x: x(bar.from), y: top, width: Math.max(2, (end - bar.from) * scale), height: ROW - 2};
      const when = `${bar.from.toFixed(3)} to ${bar.to === null ? "the end" : bar.to.toFixed(3)} s\n`;
      telling(shape("rect", {...box, class: bar.kind}), when + bar.says);
      for (const [from, to] of bar.inner) {
        const width = Math.max(1, ((to ?? story.end) - from) * scale);
        telling(shape("rect", {...box, x: x(from), width, class: "attempt"}), when + bar.says);
      }
    });
    if (lane.who) places[lane.who] = y + ROW - 1;
    y += height;
  }
  const step = [0.01, 0.1, 1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600].find(each => each * scale > 60) ?? 7200;
  for (let at = 0; at <= story.end; at += step) {
    shape("text", {x: x(at), y: 14}, `${+at.toFixed(2)} s`);
    shape("line", {x1: x(at), x2: x(at), y1: 18, y2: y, class: "lane"});
  }
  for (const mark of story.marks) {
    const at = {x: x(mark.at) - 3, y: places[mark.who] ?? TOP - 4, class: mark.fault ? "mark fault" : "mark"};
    telling(shape("text", at, mark.mark), `${mark.at.toFixed(3)} s  ${mark.who}\n${mark.what}`);
  }
  svg.setAttribute("width", x(story.end) + 20);
  svg.setAttribute("height", y);
  document.getElementById("span").textContent = `${story.end.toFixed(1)} s of virtual time`;
}

const zoom = document.getElementById("zoom");
const redraw = () => draw(Math.max(story.end, 0.001) * Math.pow(0.001, zoom.value / 100));
zoom.addEventListener("input", redraw);
window.addEventListener("resize", redraw);
redraw();
