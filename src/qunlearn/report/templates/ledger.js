const table = document.querySelector("table"), body = table.tBodies[0];
function sort(column) {
  const key = (row) => row.cells[column].textContent.trim().replace(/,(?=\d{3}\b)/g, "");
  const order = (a, b) => key(a).localeCompare(key(b), undefined, {numeric: true});
  const head = table.tHead.rows[0].cells, up = head[column].ariaSort !== "ascending";
  for (const cell of head) cell.ariaSort = "none";
  head[column].ariaSort = up ? "ascending" : "descending";
  body.append(...[...body.rows].sort((a, b) => (up ? order(a, b) : order(b, a))));
}
document.querySelectorAll("thead button").forEach((b, i) => b.addEventListener("click", () => sort(i)));
if (/^#[0-5]$/.test(location.hash)) sort(Number(location.hash[1]));
