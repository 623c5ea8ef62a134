"""Grading a class: the grader holds cases, answers and scores; what students wrote runs in a locked child process.

what students hand in   handed_in finds it, unpack opens archives, sheets reads notebooks
where their code runs   strip makes a library without answers, zygote forks a child for each paper,
                        sandbox closes it in, wire is what crosses, keeper is the grader's hold on it
what it is worth        mark observes in the child and judges here, reasons says why in words
a whole class           batch gives out the work and keeps the journal, worker does it, records is what is kept
what comes out          standings, outputs, pages, class_numbers, class_report
commands                grade_command, report_command, release; measure compares with nbgrader
"""
