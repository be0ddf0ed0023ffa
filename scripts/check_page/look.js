// Checks of a page: each function returns a list of faults.

// wide gives the elements that reach beyond the window.
const wide = () => {
  const faults = [];
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width) faults.push(`the document, ${document.documentElement.scrollWidth} of ${width}`);
  for (const e of document.querySelectorAll('main *, header *')) {
    const box = e.getBoundingClientRect();
    if (box.width > 1 && box.right > width + 1 && !e.closest('svg, .unseen')) faults.push(`${e.tagName}.${e.className}#${e.id} to ${Math.round(box.right)}`);
  }
  return faults.slice(0, 5);
};

// faint gives the texts whose contrast is below AA of the WCAG.
const faint = () => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgb = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const color = rgb(getComputedStyle(e).backgroundColor);
      if (color[3] === 255) return color;
    }
    return [255, 255, 255, 255];
  };
  const faults = new Set();
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.textContent.trim() || !e.checkVisibility() || e.closest('.unseen, option, :disabled')) continue;
    const style = getComputedStyle(e);
    const color = rgb(e.closest('svg') ? style.fill : style.color);
    const [a, b] = [light(color), light(behind(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const big = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
    if (ratio < (big ? 3 : 4.5)) faults.add(`${ratio.toFixed(2)} of "${walk.currentNode.textContent.trim().slice(0, 30)}"`);
  }
  return [...faults].slice(0, 5);
};
