"use strict";
// A heading sorts the documents: names from A on, numbers from the largest on, and
// the other way round when it is chosen again. Rows that are equal stay by name.
const body = document.querySelector("tbody");
const heads = [...document.querySelectorAll("thead th")];
const rows = [...body.rows]; // by name
heads.forEach((head, column) => {
  head.querySelector("button").addEventListener("click", () => {
    const ways = column === 0 ? ["ascending", "descending"] : ["descending", "ascending"];
    const way = ways[head.getAttribute("aria-sort") === ways[0] ? 1 : 0];
    const sign = way === "ascending" ? 1 : -1;
    const keys = new Map(rows.map((row, i) => [row, column === 0 ? i : Number(row.cells[column].textContent)]));
    for (const row of [...rows].sort((a, b) => sign * (keys.get(a) - keys.get(b)))) body.append(row);
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", way);
  });
});
