// Starts the module of a page.  No module itself: a page that was opened as a file can load this, and say what it cannot.
{
  const { page } = document.currentScript.dataset;
  const place = document.getElementById(page);
  if (location.protocol === "file:") {
    const line = document.createElement("p");
    line.className = "live-problem";
    line.textContent = "This page was opened as a file, and browsers let files load nothing. Serve its folder: trueno web serve site";
    place.replaceChildren(line);
    place.dataset.state = "problem";
  } else {
    const module = document.createElement("script");
    module.type = "module";
    module.src = `${page}.js`;
    document.body.append(module);
  }
}
